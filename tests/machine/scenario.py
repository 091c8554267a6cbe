"""A scenario: command lines, scripts, and what others do to them."""

import errno
import signal
from typing import NamedTuple

from tests.machine.scripts import Script

TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# What calls are refused with (their manual pages) that a launch cannot do without.
NEEDED = (
    ("fork", errno.EAGAIN), ("fork", errno.ENOMEM), ("pipe2", errno.EMFILE),
    ("pipe2", errno.ENFILE), ("execve", errno.EACCES), ("execve", errno.ENOMEM),
    ("mkdir", errno.ENOSPC), ("mkdir", errno.EROFS), ("epoll_ctl", errno.ENOSPC),
)  # fmt: skip
# Calls that a launch does without (docs/limits.md).
SPARED = (
    "memfd_create", "prctl", "pidfd_open", "pidfd_send_signal", "setsid", "epoll_create", "waitid",
    "setitimer", "signalfd4",
)  # fmt: skip
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
PORT = 29400  # of the first node, where launchers meet
HUB = "10.0.0.1"
RUN = "simulated"


class Fault(NamedTuple):
    """Something that somebody else does at this time, or so long after a moment of the launch."""

    at_s: float
    # "signal", "stop" (and continue), "hold" (it runs no more until it is killed); "freeze" of all;
    # the wall "clock" jumps by so many seconds; a worker is killed as "memory" runs out; of a node
    # "pause", "cut", "power", "return" (its launcher is killed, and somebody starts it again after
    # that time); "silent" (strangers who say nothing) and "digits" (one whose name has thousands of
    # them) where the launchers meet
    what: str
    to: str | int = ""  # "launcher", "guard", or a worker: one of those that run
    number: int = 0  # the signal, or by how many seconds the clock jumps
    for_s: float = 0.0
    node: int = 0
    # "started": a worker has; "ended": one has; "told": one was told to end; "": the beginning
    since: str = ""


class Refusal(NamedTuple):
    """A call that the system refuses, with an error, from a time on for so many seconds.

    And not before it was made so many times.
    """

    call: str
    error: int
    since_s: float = 0.0
    for_s: float = 1e9
    after: int = 0


class Scenario(NamedTuple):
    seed: int
    argvs: tuple[tuple[str, ...], ...]  # of each node's launcher
    starts: tuple[float, ...]  # when each begins, in seconds
    scripts: tuple[Script, ...]  # by rank
    faults: tuple[Fault, ...]
    grace_s: float
    core_s: float  # for a core to be written
    restless: float  # how often a call lets others go on, of 1
    look_s: float  # how long after something was written the user reads it
    pause: tuple[float, float] | None  # when the user stops reading, and for how long
    refused: Refusal | None = None
    unable: int | None = None  # this node's launcher cannot take part, as it sees at once
    files_most: int = 1024  # the soft limit of open files
    latencies: tuple[float, ...] = ()  # of each node's link
    mute: tuple[int, float] | None = None  # a name server: after so many answers, for so long
    free_s: float = 0.0  # for the memory of a worker, or of what it has started, to be given back
    call_s: float = 2e-5  # that a call takes, at most
    pids: int = 32768  # numbers of processes that there are
    has_thread: bool = False  # the launcher has a second one, which takes signals
    disk: int | None = None  # bytes that it has left; None: enough
    is_foreign: bool = False  # who reads is another user

    def flag(self, name: str) -> str | None:
        """The value of a flag of all nodes."""
        argv = self.argvs[0]
        return argv[argv.index(name) + 1] if name in argv else None

    @property
    def is_needed_refused(self) -> bool:
        """Whether a call is refused that a launch cannot do without."""
        return self.refused is not None and self.refused[:2] in NEEDED

    def is_refused(self, call: str) -> bool:
        return self.refused is not None and self.refused.call == call

    @property
    def is_alone(self) -> bool:
        return len(self.argvs) == 1

    @property
    def is_elastic(self) -> bool:
        return ":" in (self.flag("--nnodes") or "")

    @property
    def restarts(self) -> int:
        return int(self.flag("--max-restarts") or 0)
