"""What was played, as properties ask for it."""

import re
import signal
from collections.abc import Iterator
from typing import TypeAlias

from tests.machine.kernel import Kernel
from tests.machine.node import Node
from tests.machine.play import Host, Played
from tests.machine.process import CORES, Process, Sent
from tests.machine.scripts import COUNT

Verdict: TypeAlias = str | bool
ENDS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
# Of time in which a process could not run, what a launch cannot know of: gaps below a second.
UNSEEN_S = 1.05
CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
CRASH_S = 0.2  # spawnlaunch.outcome.failures, and the time of a look
EARLY_S = 0.1  # by which a crash may have begun before what was seen first
START_S = 0.001  # from a fork until the end of that process is seen, and others are looked at
TIMED_OUT, WRONG_USE, LOST_OUTPUT, REFUSED = 124, 2, 74, 71
GUARD, LOOKUP = "spawnlaunch grd", "spawnlaunch looks up"
MARGIN_S = 25.0  # for what cannot be killed, stacks, readers
HUNG = "the workers hung"
IS_STOPPED = re.compile(
    r"rank.* (is|are) stopped, for"
)  # with --on-hang kill: so long that it hangs
LATE_S = 10.0  # for launchers that are not there yet to hear that the launch has ended
NAMED = re.compile(r"failed(?: first)?(?:, after [^:]*)?: rank (\d+) ")
AWAY = frozenset({"cut", "pause"})  # for the others
ORDER = frozenset({"pidfd_open", "epoll_create"})  # which tell the order of ends, together
STILL = frozenset({"stop", "freeze", "pause", "cut"})


def not_admitted(played: Played, host: Host) -> list[Process]:
    """Without what goes on as docs/limits.md has it: if launcher and guard are both killed."""
    killed = {to for n, to in signalled(played) if n == signal.SIGKILL}
    killed |= {p for p in host.launchers if p.code == -signal.SIGKILL}  # "return"
    if killed & {*host.launchers} and killed & {*host.guards}:
        return [] if played.scenario.is_refused("prctl") else host.workers
    if killed & {*host.guards} and played.scenario.is_refused("prctl"):
        # Nothing ends it then but its own alarm.
        return [p for p in host.processes if not p.command[0].startswith(LOOKUP)]
    return host.processes


def last_attempt(host: Host) -> list[Process]:
    counts = [int(p.environ[COUNT]) for p in host.workers]
    return [p for p, n in zip(host.workers, counts, strict=True) if n == max(counts)]


def first_failures(played: Played, host: Host) -> list[Process]:
    """Workers of the last attempt that may be named as those that failed first.

    They were about to end before anybody of the launch told them to, and before any of them had
    ended; or crashed so soon after it that the other may have failed because of that.
    """
    near_s, refused = START_S * slowness(played), played.scenario.refused
    if refused and refused.call in ORDER:  # whoever looks late finds all that have ended
        near_s += lost_s(played)
    return may_be_first(failed(played, host), near_s, CRASH_S * slowness(played) + lost_s(played))


def slowness(played: Played) -> float:
    """How much slower calls are than usual."""
    return played.scenario.call_s / Kernel.CALL_S


def failed(played: Played, host: Host) -> list[Process]:
    """Workers of the last attempt that failed before the launch told them to end."""
    told: dict[int, float] = {}
    for sent in sent_by_launch(played, host):
        told.setdefault(id(sent.to), sent.when)
    return [
        p for p in last_attempt(host)
        if p.code and p.dying is not None and p.dying <= told.get(id(p), p.dying)
    ]  # fmt: skip


def may_be_first(
    failed: list[Process], near_s: float, crash_s: float, ways_s: dict[Node, float] | None = None
) -> list[Process]:
    """Those of the workers that failed by themselves that may be named.

    A crash that was the first is: nobody crashes because another one exits, or aborts. It is not
    before another crash, if both are seen as somebody else ends (docs/limits.md), or that one has
    ended. An abort gives way to who dumps its core as somebody looks next: it may have begun
    before. `ways_s` has the way of each node to the hub, where there are several.
    """
    if not failed:
        return []
    first = min(failed, key=began)
    until, seen = first.ended, first.ended
    if is_crash(first):
        seen = min(p.ended for p in failed)
        if ways_s is None:
            until = first.dying or 0.0
    gives_way = -(first.code or 0) == signal.SIGABRT
    return [
        p for p in failed
        if p.could_run_s(until, max(until, began(p)))  # while all stands nobody can look
        <= (crash_s if is_crash(p) or (gives_way and dumps(p)) else near_s)
        or (is_crash(p) and seen < first.ended and began(p) <= seen + near_s)
        if not (ways_s and is_surely_later(p, first, near_s, ways_s))
    ]  # fmt: skip


def is_surely_later(
    other: Process, first: Process, near_s: float, ways_s: dict[Node, float]
) -> bool:
    """Whether a failure is known to be later than a crash that was the first.

    As it ends, it is looked at who dumps its core: on the same node at once, elsewhere once the hub
    has heard of it, and has told. A crash that has ended before may have begun as much earlier as
    it takes to hear from the hub.
    """
    if other is first or not is_crash(first) or is_crash(other):
        return False
    if began(other) <= began(first) + near_s:
        return False
    here, there = ways_s[first.node], ways_s[other.node]
    is_same = other.node is first.node
    is_looked_at = other.ended + (0.0 if is_same else here + there) + near_s < first.ended
    return is_looked_at or first.ended + near_s < other.ended + here + EARLY_S


def began(process: Process) -> float:
    return process.dying or 0.0


def is_crash(process: Process) -> bool:
    return is_of_memory(process) or -(process.code or 0) in CRASHES


def dumps(process: Process) -> bool:
    return process.died_of in CORES


def is_of_memory(process: Process) -> bool:
    """Whether the kernel has killed it for that, or somebody has, which nobody can tell."""
    is_like_one = process.node.oom_kills and process.died_of == signal.SIGKILL
    return process.is_of_memory or bool(is_like_one)


def sent_by_launch(played: Played, host: Host) -> Iterator[Sent]:
    """Signals of launcher and guard to those that still ran."""
    ours = {id(p) for p in (*host.launchers, *host.guards)}
    for sent in played.kernel.signals:
        is_ours = id(sent.sender) in ours and sent.signum in (signal.SIGTERM, signal.SIGKILL)
        if is_ours and (sent.to.code is None or sent.when < sent.to.ended):
            yield sent


def signalled(played: Played) -> list[tuple[int, Process]]:
    return [(f.number, to) for _, f, to in played.happened if to is not None and f.what == "signal"]


def status(code: int | None) -> int:
    """As a shell has it."""
    return 128 - code if code and code < 0 else code or 0


def who_is_apart(played: Played) -> set[int]:
    """Nodes that somebody has cut off, killed, or told to end alone."""
    apart = {f.node for _, f, _ in played.happened if f.what in (*AWAY, "power", "return")}
    for number, host in enumerate(played.hosts):
        if any((p.code or 0) < 0 for p in host.launchers):
            apart.add(number)  # it had not come so far that it could tell anybody
        above = (*host.launchers, *host.guards)
        for n, to in signalled(played):
            is_elastic = played.scenario.is_elastic
            if to in above and (n == signal.SIGKILL or (is_elastic and n in ENDS)):
                apart.add(number)
    return apart | who_comes_too_late(played)


def who_comes_too_late(played: Played) -> set[int]:
    """Nodes whose launcher was stopped before it had joined, perhaps until the others had ended.

    Those wait some seconds for it, or begin without it where they may.
    """
    is_elastic = played.scenario.is_elastic
    stops = [f for _, f, _ in played.happened if f.what == "stop"]
    stopped = {f.node for f in stops if is_elastic or f.for_s > LATE_S}
    return {number for number in stopped if not played.hosts[number].workers}


def whats(played: Played) -> set[str]:
    return {f.what for _, f, _ in played.happened}


def is_told(played: Played) -> bool:
    """Whether somebody has sent a signal that ends something above workers."""
    above = {id(p) for host in played.hosts for p in (*host.launchers, *host.guards)}
    return any(id(to) in above for n, to in signalled(played) if n not in (10, 12, 28))


def code(played: Played, host: Host) -> int | None:
    """The status of a node; that nobody reads what it says is its own affair."""
    code = host.launcher.code
    return 0 if played.scenario.pause and code == LOST_OUTPUT else code


def first_start(played: Played) -> float | None:
    return min((p.start for host in played.hosts for p in host.workers), default=None)


def lost_s(played: Played) -> float:
    times = sum(f.for_s for _, f, _ in played.happened if f.what in STILL)
    return times + sum(played.scenario.pause or (0, 0))


def stops(played: Played) -> int:
    return sum(f.what in ("stop", "freeze", "pause") for _, f, _ in played.happened)


def attempts(played: Played) -> Iterator[list[Process]]:
    """The workers of each start, of all nodes."""
    found: dict[str, list[Process]] = {}
    for process in (p for host in played.hosts for p in host.workers):
        found.setdefault(process.environ[COUNT], []).append(process)
    return iter(found.values())


def is_any_killed(played: Played) -> bool:
    return "memory" in whats(played) or any(n == signal.SIGKILL for n, _ in signalled(played))
