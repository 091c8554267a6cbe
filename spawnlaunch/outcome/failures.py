"""How workers and launches end, as records, and the causes of that, with their words. Pure.

Also which of several failures was the first, as far as that can be known, and whether a restart may
mend it. The guard sees the end of a process, which is later than its failure: a core is dumped,
memory is given back, an interpreter closes its files. Meanwhile other ranks fail because of it, and
the guard may see these first. So a failure has an interval: `when` is the latest that it can have
begun, `began` the earliest. Where the intervals of two overlap their kinds decide: a crash goes
before an error, an error before an abort, and errors about a lost peer are last.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence

from spawnlaunch.base import records

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource
    from typing import Literal, TypeAlias

    # The meaning of a text or a number; multinode/messages has the values that each may have.
    Name: TypeAlias = str  # of a host or a launch; it is printed, and may be in an environment
    Count: TypeAlias = int
    Rank: TypeAlias = int  # -1: none
    Code: TypeAlias = int  # as subprocess has it: -n is death by signal n
    Seconds: TypeAlias = float

    Kind: TypeAlias = Literal[
        "failure", "hang", "signal", "timeout", "gone", "guard", "preload",
        "lost", "join", "absent", "unable", "refused",
    ]  # fmt: skip

# All kinds of causes, those of several nodes last, and the words for each.
WORDS: dict[Kind, str] = {
    "failure": "{worker} {how}{after}{oom}{lost}",
    "hang": "the workers hung{after}",  # none has written anything for --hang-timeout
    "signal": "the launcher on {host} got {signal}",
    "timeout": "the time of the launch is over (--timeout)",
    "gone": "the launcher is gone",
    "guard": "the guard (pid {pid}) {how}",
    "preload": "{words}",  # the modules for all workers could not be imported
    "lost": "{who} was lost{after}",  # a node, or the hub
    "join": "{host} has joined",  # with which all workers are started again
    "absent": "still missing: {words}",
    "unable": "{host} cannot take part: {words}",
    "refused": "{words}",  # its flags are not the hub's
}
RESTARTABLE_KINDS = frozenset({"failure", "hang", "lost"})  # that a restart may mend

LOST = 69  # EX_UNAVAILABLE of sysexits.h: a node or the hub is not there
TIMED_OUT = 124  # of timeout(1) (coreutils)

SIGABRT, SIGKILL = 6, 9
CRASHES = frozenset({-4, -7, -8, -11})  # SIGILL, SIGBUS, SIGFPE, SIGSEGV (signal(7))

# Messages of libraries in a rank whose peer is gone.
VICTIMS_WORDS = (
    *("closed by peer", "reset by peer", "Broken pipe", "remote process exited"),
    "Watchdog caught collective operation timeout",
)

STUCK_S = 10.0  # after SIGKILL, which ends a process in milliseconds if it is not stuck
LATE_S = 0.1  # by which a process that watches may run later than another one
NEVER = float("inf")  # a time that does not come
MOST_NAMES, MORE = 8, " more"

# Orders of failures, the one that is least a consequence of others first.
CRASH, ERROR, ABORT, VICTIM = range(4)


class Cause(records.NamedTuple):
    """Why workers were ended: the first thing that went wrong, or that was asked for."""

    kind: Kind
    host: Name = ""  # where
    rank: Rank = -1  # of a failure: the worker
    code: Code = 0  # how that worker ended; -n for signal n; else the status that comes of it
    words: str = ""  # the last words of the worker or launcher, or the missing nodes
    pid: Count = 0  # of the worker or the guard; 0: it could not be started
    oom: str = ""  # evidence that memory ran out
    lost: tuple[Name, ...] = ()  # hosts that were lost meanwhile, which may be the true cause
    after_s: Seconds = 0.0  # for so long it had gone well

    @property
    def in_words(self) -> str:
        """
        >>> Cause("failure", "node1", rank=3, code=-9, pid=25342, after_s=1.0).in_words
        'rank 3 on node1 (pid 25342) died of SIGKILL after 1.0 s'
        >>> Cause("signal", "node1", code=-15).in_words
        'the launcher on node1 got SIGTERM'
        """
        lost = f" ({names(self.lost)} was lost as well, probably the cause)" if self.lost else ""
        return WORDS[self.kind].format(
            worker=worker(self.rank, self.host, self.pid),
            how=end_in_words(self.code) if self.kind == "failure" else self.words,
            after=f" after {self.after_s:.1f} s" if self.after_s else "",
            oom=f"; {self.oom}" if self.oom else "",
            lost=lost,
            signal=signal_name(-self.code),
            host=self.host,
            who=self.host or self.words or "a node",
            pid=self.pid,
            words=self.words,
        )

    def status(self, codes: Iterable[Code] = ()) -> int:
        """The exit status of a launch with this cause; `codes` are those of its workers."""
        match self.kind:
            case "timeout" | "hang":
                return TIMED_OUT
            case "lost" | "join" | "absent":
                return LOST
            case "failure" | "guard" | "preload" | "unable" | "refused":
                return exit_status(self.code)
            case "signal" | "gone":
                ends = set(codes)
                if len(ends) == 1 and min(ends) >= 0:
                    return ends.pop()  # all by themselves with one code: "preempted, saved"
                return exit_status(self.code or -SIGKILL)


class Failure(records.NamedTuple):
    """A worker's failure. Times are in seconds, by one clock for all that are compared."""

    cause: Cause
    when: float  # the latest that it can have begun at
    early_s: float = 0.0  # it may have begun so much earlier

    @property
    def began(self) -> float:
        """The earliest time at which the failure can have begun."""
        return self.when - self.early_s

    @property
    def order(self) -> int:
        """The order of this kind of failure; the least is least likely a consequence of others.

        Libraries abort where a peer has gone; none crashes, or makes memory run out.
        """
        code = self.cause.code
        if code in CRASHES or (code == -SIGKILL and self.cause.oom):
            return CRASH
        if any(each in self.cause.words for each in VICTIMS_WORDS):
            return VICTIM
        return ABORT if code == -SIGABRT else ERROR


class WorkerExit(records.NamedTuple):
    """The end of one worker. Times are in seconds, by the monotonic clock of this machine."""

    rank: int
    local_rank: int
    pid: int | None  # None: it could not be started
    code: Code
    started_at: float
    ended_at: float
    failed_between: tuple[float, float]  # the earliest and the latest that its failure began at
    sent: int  # the last signal that the launcher sent to end it; 0: it ended by itself
    error_file: str | None  # where torch's @record writes
    stderr: str | None  # the file that its stderr goes to
    stderr_begin: int = 0  # the bytes that others had written there before
    stdout: str | None = None  # the file that its stdout goes to
    tail: str | None = None  # the last output on its stderr, where that is a pipe of ours
    used: resource.struct_rusage | None = None  # by it and the children that it has waited for
    is_unreaped: bool = False  # SIGKILL did not end it, and it is not waited for any more
    signalled_at: float = NEVER  # when the launcher sent the first signal to end it
    last_output_at: float = NEVER  # on its stderr, where that is a pipe of ours

    @property
    def life_s(self) -> float:
        """The seconds from its start to its end."""
        return self.ended_at - self.started_at


class LaunchResult(records.NamedTuple):
    """How a launch, or one attempt of it, ended."""

    status: int  # the launcher's exit status
    cause: Cause | None  # None: every worker ended with 0
    exits: tuple[WorkerExit, ...] = ()  # in the order in which the workers ended
    restarted: tuple[Cause, ...] = ()  # of attempts that were followed by another, in their order

    def with_loss(self) -> LaunchResult:
        """Return the result after something could not be written; else it stays as it is."""
        return self._replace(status=self.status or os.EX_IOERR)

    @property
    def first_failure(self) -> WorkerExit | None:
        """The worker that failed first and so ended the launch, if it was on this node."""
        if self.cause is None or self.cause.kind != "failure":
            return None
        failed = self.cause.rank, self.cause.pid
        return next((each for each in self.exits if (each.rank, each.pid or 0) == failed), None)


def first_candidates(failures: Sequence[Failure], other: Failure) -> tuple[Failure, ...]:
    """The failures that may still be the first, now that there is another.

    A failure is dropped if it began, for certain, no earlier than another one of its order.
    """
    if any(_is_later(other, failure) for failure in failures):
        return tuple(failures)
    return (*(failure for failure in failures if not _is_later(failure, other)), other)


def first(failures: Sequence[Failure]) -> Failure:
    """The failure that was the first, of at least one; a victim only if all are victims.

    It is the earliest, unless another one may have been earlier still and is less a consequence.
    """
    candidates = [failure for failure in failures if failure.order != VICTIM] or failures
    earliest = min(candidates, key=lambda failure: failure.when)
    rather = [failure for failure in candidates if _goes_before(failure, earliest)]
    return min(rather or [earliest], key=lambda failure: (failure.order, failure.when))


def used_after(
    cause: Cause, used: int, most: int, window_s: float = 0.0, final: Container[int] = ()
) -> int | None:
    """The number of used restarts after one more, of `most`; None: the launch ends with its cause.

    After `window_s` of health (0: never) none counts as used. No restart follows a status of
    `final`, or a cause that no restart may mend.
    """
    if cause.kind not in RESTARTABLE_KINDS or cause.status() in final:
        return None
    used = 0 if 0 < window_s <= cause.after_s else used
    return used + 1 if used < most else None


def _is_later(failure: Failure, other: Failure) -> bool:
    """Whether `failure`, for certain, began no earlier than `other`, which is of the same order.

    True also where both are equal.
    """
    return (
        failure.order == other.order and other.when <= failure.when and other.began <= failure.began
    )


def _goes_before(failure: Failure, earliest: Failure) -> bool:
    late_s = LATE_S if failure.order == CRASH else 0.0
    return failure.order < earliest.order and failure.began - late_s <= earliest.when


def exit_status(code: Code) -> int:
    """The shell's exit status for a code of subprocess's kind: -n is death by signal n."""
    return code if code >= 0 else 128 - code


def signal_name(signum: int) -> str:
    """
    >>> signal_name(9), signal_name(40)
    ('SIGKILL', 'signal 40')
    """
    from signal import Signals

    try:
        return Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def end_in_words(code: Code) -> str:
    """
    >>> end_in_words(7), end_in_words(-9)
    ('exited with status 7', 'died of SIGKILL')
    """
    return f"exited with status {code}" if code >= 0 else f"died of {signal_name(-code)}"


def worker(rank: Rank, host: Name, pid: int | None, width: int = 0) -> str:
    """
    >>> worker(3, "node1", 25342), worker(3, "node1", None)
    ('rank 3 on node1 (pid 25342)', 'rank 3 on node1 (not started)')
    """
    return f"rank {rank:{width}} on {host} ({f'pid {pid}' if pid else 'not started'})"


def names(some: Sequence[Name]) -> str:
    """
    >>> names(["node1", "node2"])
    'node1, node2'
    >>> names([f"node{n:04}" for n in range(1, 9408)])
    'node[0001-9407]'
    >>> names([f"node{n}" for n in range(0, 20, 2)])
    'node0, node2, node4, node6, node8, node10, node12 and 3 more'
    """
    *shown, last = folded(some) or ("",)
    between = " and " if last.endswith(MORE) else ", "
    return between.join((", ".join(shown), last)) if shown else last


def folded(some: Sequence[Name]) -> tuple[Name, ...]:
    """At most MOST_NAMES texts for any number of names, which are folded as Slurm folds them.

    >>> folded(["b.site", *(f"a{n}.site" for n in range(8, 20))])
    ('a[8-19].site', 'b.site')
    """
    if len(some) <= MOST_NAMES:
        return tuple(some)
    runs: list[list[tuple[str, str, str]]] = []
    for name in sorted(map(_split, some), key=lambda name: (name[0], name[2], int(name[1] or 0))):
        if runs and _is_next(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    shown = runs if len(runs) <= MOST_NAMES else runs[: MOST_NAMES - 1]
    texts = []
    for run in shown:
        (before, first, domain), (_, last, _) = run[0], run[-1]
        texts.append(f"{before}[{first}-{last}]{domain}" if len(run) > 1 else "".join(run[0]))
    rest = len(some) - sum(map(len, shown))
    return (*texts, f"{rest}{MORE}") if rest else tuple(texts)


def _split(name: Name) -> tuple[str, str, str]:
    """The text before a name's number, the number, and the domain: `("node", "07", ".site")`."""
    host, dot, domain = name.partition(".")
    before = host.rstrip("0123456789")
    return before, host[len(before) :], dot + domain


def _is_next(before: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    number = before[1] and str(int(before[1]) + 1).zfill(len(before[1]))
    return bool(number) and other == (before[0], number, before[2])
