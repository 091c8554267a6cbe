"""Processes that workers with status 0 have left, as an upload: they have the grace to end.

after a second      they are named
after the grace     they are told to end (SIGTERM)
TOLD_S later        they are killed, as what a failed worker leaves is at once
"""

from __future__ import annotations

from spawnlaunch import machine
from spawnlaunch.run.signals import signal
from spawnlaunch.run.staying import named
from spawnlaunch.run.tree import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.run.supervisor import Supervisor
    from spawnlaunch.run.tree import Tree

SAID_S = 1.0
TOLD_S = 5.0
LOOK_S = 0.05  # until the next look
MOST_NAMED = 5


def let_end(supervisor: Supervisor) -> None:
    """Wait for their end; the caller kills what is left. A launch that is to end does not wait."""
    tree, grace_s = supervisor.tree, supervisor.launch.grace_s
    if not _goes_on(supervisor, tree, min(SAID_S, grace_s)):
        return
    supervisor.output.say([f"all workers have ended well, and left {_names(tree)}, which has "
                           f"{grace_s:g} s (--grace) to end by itself"])  # fmt: skip
    if not _goes_on(supervisor, tree, grace_s - SAID_S):
        return
    supervisor.output.say([f"{_names(tree)} is told to end: {grace_s:g} s are over"])
    send(signal.SIGTERM, tree.living())
    if _goes_on(supervisor, tree, min(TOLD_S, grace_s)):
        supervisor.output.say([f"killing {_names(tree)}"])


def _goes_on(supervisor: Supervisor, tree: Tree, for_s: float) -> bool:
    """Whether one still runs after so many seconds, and nobody wants an end of the launch."""
    deadline = machine.running_s() + for_s
    while tree.living():
        if machine.running_s() > deadline:
            return True
        if not supervisor.look(LOOK_S):
            return False
    return False


def _names(tree: Tree) -> str:
    pids = sorted({process.pid for process in tree.living()})
    return ", ".join(map(named, pids[:MOST_NAMED])) + ", ..." * (len(pids) > MOST_NAMED)
