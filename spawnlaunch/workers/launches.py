"""The records of a launch: its workers, what they are made of, and how they and it have ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from spawnlaunch.base import machine, records
from spawnlaunch.binding import apply
from spawnlaunch.binding.plan import Plan
from spawnlaunch.cli import flags
from spawnlaunch.node.hardware import Node
from spawnlaunch.node.visible import Visible
from spawnlaunch.outcome import failures
from spawnlaunch.world import identity
from spawnlaunch.world.host import HeldPort

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource


class Route(records.NamedTuple):
    """One stream of one worker."""

    file: str | None  # path of a file that keeps it
    shown: bool  # on the launcher's own stream

    @property
    def is_redirected(self) -> bool:
        """Whether it goes to the file only, which the worker then writes by itself."""
        return self.file is not None and not self.shown


class Routes(records.NamedTuple):
    """Both streams of one worker."""

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
    own_session: bool
    routes: Routes
    prefix: str  # of each of its lines that the launcher shows

    @property
    def name(self) -> str:
        """`rank 3 on node1`, in lines about it."""
        return f"rank {self.rank} on {machine.uname().nodename}"


class Launch(records.NamedTuple):
    """All that the workers of an attempt are made of, and how they are ended and reported.

    No launch changes. For each later attempt `attempts` (`ganged`, on several nodes) makes one with
    another port. The fields from `logs` on are those of `starting.complete`.
    """

    request: flags.Request
    resolution: identity.Resolution
    plan: Plan  # where the workers sit
    environ: Mapping[str, str]  # what the launcher inherited
    hostname: str
    scratch: str  # a directory for files that need not outlive the launch; its name marks the run
    held_port: HeldPort | None  # MASTER_PORT, where this launcher has chosen it
    seen: Visible  # the devices that a worker sees
    node: Node  # this machine
    argv: tuple[str, ...] = ()  # what was typed
    closed: tuple[str, ...] = ()  # the standard streams that nobody can write to
    blocked: frozenset[int] = frozenset()  # signals that workers are started with blocked
    group: int = 0  # process group of the launcher, which a lone worker shares
    # Whether a worker that exited with 0 has failed all the same; spawnlaunch.launch alone sets it.
    owes: Callable[[Worker], bool] = lambda _: False
    journal: int | None = None  # a pipe for what happens, where --record asks for it
    logs: str | None = None  # the template of the directories of the ranks' files, if any
    warnings: tuple[str, ...] = ()  # about the workers' places, and that of their files
    grace_s: float = 0.0  # from SIGTERM to SIGKILL
    # The longest that workers have once the launch is told to end, before the resource manager
    # kills the launcher too (Slurm's KillWait); None: there is no such limit.
    limit_s: float | None = None
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


class WorkerExit(records.NamedTuple):
    """How one worker ended."""

    rank: int
    local_rank: int
    pid: int | None  # None: it could not be started
    code: int  # exit status, or -n for death by signal n
    after_s: float  # from its start to its end, in seconds
    sent: int  # the last signal that the launcher sent to end it; 0: it ended by itself
    error_file: str | None  # where torch's @record writes
    stderr: str | None  # the file that its stderr goes to
    stdout: str | None = None  # the file that its stdout goes to
    tail: str | None = None  # what it wrote last to its stderr, where that is a pipe of ours
    used: resource.struct_rusage | None = None  # by it, and by what it has waited for
    left: bool = False  # SIGKILL did not end it, and nobody waits for it any more
    told_s: float = 0.0  # how long before its end the launcher told it to end
    failed_s: float = 0.0  # its failure was at least so long before its end
    early_s: float = 0.0  # and perhaps up to so much earlier than that
    said_s: float = 0.0  # how long before its end it wrote to its stderr last, where that is a pipe


class LaunchResult(records.NamedTuple):
    """How the launch ended, or one attempt of it."""

    status: int  # the launcher's exit status
    cause: failures.Cause | None  # None: every worker ended with 0
    exits: tuple[WorkerExit, ...] = ()  # in the order in which the workers ended
    # Of attempts that were followed by another, in their order.
    restarted: tuple[failures.Cause, ...] = ()

    @property
    def first_failure(self) -> WorkerExit | None:
        """The worker whose failure ended the launch, if it was one of this node."""
        if self.cause is None or self.cause.kind != "failure":
            return None
        who = self.cause.rank, self.cause.pid
        return next((one for one in self.exits if (one.rank, one.pid or 0) == who), None)
