"""Processes that workers with status 0 have left, as an upload: they have the grace to end.

after a second      they are named
after the grace     they are told to end (SIGTERM)
TOLD_S later        they are killed, as what a failed worker leaves is at once
"""

from __future__ import annotations

from spawnlaunch import machine
from spawnlaunch.run import staying
from spawnlaunch.run.signals import signal
from spawnlaunch.run.tree import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spawnlaunch.run.tree import Tree

    Look = Callable[[float], bool]  # for so many seconds; False: there is a cause to end the launch

SAID_S = 1.0
TOLD_S = 5.0
LOOK_S = 0.05  # until the next look
MOST_NAMED = 5


def let_end(tree: Tree, grace_s: float, look: Look, say: Callable[[Iterable[str]], object]) -> None:
    """Wait for their end; the caller kills what is left. A launch that is to end does not wait."""
    if not _goes_on(tree, look, min(SAID_S, grace_s)):
        return
    say([f"all workers have ended well, and left {_names(tree)}, which has {grace_s:g} s (--grace) "
         "to end by itself"])  # fmt: skip
    if not _goes_on(tree, look, grace_s - SAID_S):
        return
    say([f"{_names(tree)} is told to end: {grace_s:g} s are over"])
    send(signal.SIGTERM, tree.living())
    if _goes_on(tree, look, min(TOLD_S, grace_s)):
        say([f"killing {_names(tree)}"])


def _goes_on(tree: Tree, look: Look, for_s: float) -> bool:
    """Whether one still runs after so many seconds, and nothing ends the launch."""
    deadline, is_over = machine.running_s() + for_s, False
    while tree.living():
        if is_over:
            return True
        if not look(LOOK_S):
            return False
        is_over = machine.running_s() > deadline  # of this, a gap was just counted
    return False


def _names(tree: Tree) -> str:
    pids = sorted({process.pid for process in tree.living()})
    return ", ".join(map(staying.named, pids[:MOST_NAMED])) + ", ..." * (len(pids) > MOST_NAMED)
