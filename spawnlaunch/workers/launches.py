"""The records of a launch and its workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from spawnlaunch.base import machine, records, say
from spawnlaunch.binding import apply
from spawnlaunch.binding.plan import Plan
from spawnlaunch.cli import flags
from spawnlaunch.node.hardware import Node
from spawnlaunch.node.visible import Visible
from spawnlaunch.world import identity
from spawnlaunch.world.host import LockedPort


class Route(records.NamedTuple):
    """The way of one stream of one worker."""

    file: str | None  # path of a file that keeps it
    shown: bool  # on the launcher's own stream

    @property
    def is_redirected(self) -> bool:
        """Whether the stream goes to the file only, which the worker then writes by itself."""
        return self.file is not None and not self.shown


class Routes(records.NamedTuple):
    """The ways of both streams of one worker."""

    stdout: Route
    stderr: Route


SHOWN = Routes(Route(None, True), Route(None, True))


class Worker(records.NamedTuple):
    """A process to be started."""

    rank: int
    local_rank: int
    command: tuple[str, ...]
    environ: Mapping[str, str]  # complete: nothing else is inherited
    binding: apply.Binding
    has_session: bool  # of its own
    routes: Routes
    prefix: str  # of each of its lines that the launcher shows

    @property
    def name(self) -> str:
        """`rank 3 on node1`, for messages about the worker."""
        return f"rank {self.rank} on {machine.uname().nodename}"


class Launch(records.NamedTuple):
    """The description of the workers of an attempt, and of how they are ended and reported.

    No launch changes. For each later attempt `guard`, or on several nodes `node_launch`, makes one
    with another port. The fields from `logs` on are those of `starting.complete`.
    """

    request: flags.Request
    resolution: identity.Resolution
    plan: Plan  # where the workers sit
    environ: Mapping[str, str]  # as the launcher inherited it
    hostname: str
    scratch: str  # a directory for files that need not outlive the launch; its name marks the run
    locked_port: LockedPort | None  # MASTER_PORT, where this launcher has chosen it
    seen: Visible  # the devices that a worker sees
    node: Node  # this machine
    argv: tuple[str, ...] = ()  # the words of the command line
    closed: tuple[str, ...] = ()  # the standard streams that are closed for writing
    blocked: frozenset[int] = frozenset()  # signals that workers are started with blocked
    group: int = 0  # process group of the launcher, which a lone worker shares
    # Whether status 0 of a worker counts as a failure; spawnlaunch.launch alone sets it.
    exit_zero_is_failure: Callable[[Worker], bool] = lambda _: False
    logs: str | None = None  # the template of the directories of the ranks' files, if any
    notices: tuple[say.Notice, ...] = ()
    grace_s: float = 0.0  # from SIGTERM to SIGKILL
    failure_grace_s: float | None = None  # after another's failure; None: the same
    result: str | None = None  # file for the ends of all ranks
    error_file: str | None = None  # the user's TORCHELASTIC_ERROR_FILE, for the first failure

    @property
    def mark(self) -> str:
        """The unique id of the run, which the workers' environments bear."""
        return os.path.basename(self.scratch)

    @property
    def host(self) -> str:
        """The host's name without its domain."""
        return self.hostname.partition(".")[0]
