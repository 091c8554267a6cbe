"""What must hold in every schedule.

Each function yields a verdict for each thing that it judges: False where it holds, else words.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from spawnlaunch import cli
from spawnlaunch.errors import UsageError
from spawnlaunch.flags import FAILURE_GRACE_S, Request
from spawnlaunch.run import say
from spawnlaunch.run.environment import STACK_SIGNAL, WITNESS
from tests.machine.kernel import CORES, MOST_CALLS, Kernel, Node, Process, Sent
from tests.machine.play import Host, Played
from tests.machine.scripts import COUNT, End, Ignore

Verdict: TypeAlias = str | bool

ENDS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
# Of time in which a process could not run, what a launch cannot know of: gaps below a second.
UNSEEN_S = 1.05
CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
CRASH_S = 0.2  # spawnlaunch.failures, and the time of a look
EARLY_S = 0.1  # by which a crash may have begun before what was seen first
ENDS_S = 1.0  # for the kernel to end who is told to die with the guard
DIES_S = 0.1  # from a signal until a process that has just been forked dies of it
ROUNDED_S = 0.06  # of a time that is said to a tenth of a second
STACKS_S = 0.01  # from the end of patience until it was seen where ranks are, and they are told
STACK_S = 0.25  # for one that shows its own
START_S = 0.001  # from a fork until the end of that process is seen, and others are looked at
TIMED_OUT, WRONG_USE, LOST_OUTPUT, REFUSED = 124, 2, 74, 71
GUARD, LOOKUP = "spawnlaunch grd", "spawnlaunch looks up"
MARGIN_S = 25.0  # for what cannot be killed, stacks, readers
OF_OURS = ("internal error", "Traceback (most recent call last)", "fault of spawnlaunch")
HUNG = "the workers hung"
NOT_SO = ("could not kill", "did not die of SIGKILL", "cannot be reaped")  # of nobody here
NEAR_S = 0.02  # by which times of two nodes may be unlike, once corrected for the link
CALL_S = 30.0  # for others to come, where enough are there
ROUNDS = 45  # ways to the hub until a launcher has joined that looks at all of its ports
HEARD_S = 1.0  # until all nodes have heard that a rank of another one speaks
HUNG_S = 5.0  # until it is seen that nobody speaks, and stacks are told
GRACE_LATE_S = 0.9  # after the grace, until it is seen that it is over
LATE_S = 10.0  # for launchers that are not there yet to hear that the launch has ended
AGAIN_S = 0.04  # after an answer, until a name server is asked once more
TALK_S = 15.0  # for launchers to tell each other
LOST_S = 60.0  # after which a node that does not answer counts as lost
RETURN_S = 60.0  # for a launcher that was lost, by hand
NAMED = re.compile(r"failed(?: first)?(?:, after [^:]*)?: rank (\d+) ")
WELL = re.compile(NAMED.pattern + r"[^;\n]* after (\S+) s")
OVERDUE = re.compile(r"still ran after (\S+) s: killed")
AWAY = frozenset({"cut", "pause"})  # for the others
ORDER = frozenset({"pidfd_open", "epoll_create"})  # which tell the order of ends, together
STILL = frozenset({"stop", "freeze", "pause", "cut"})


def broken(played: Played) -> list[str]:
    """All that does not hold."""
    return [
        f"{name}: {words}" for name, found in verdicts(played).items() for words in found if words
    ]


def verdicts(played: Played) -> dict[str, list[Verdict]]:
    """By property, what it has judged; nothing where such a launch is not its subject."""
    checks = [everything_ends, nobody_is_left, no_fault_of_ours, the_whole_grace, all_output]
    checks += [silent_in_its_own_time, it_ends_in_time, the_grace_of_what_is_left, the_old_limit]
    checks += [the_first_is_named, the_grace_is_said, all_of_it_is_kept, memory_is_named]
    checks += [a_hang_is_ended, the_guard_ends_by_itself, starts_are_counted, a_place_of_its_own]
    checks += [the_result_is_written, nothing_is_said_twice, no_longer_grace]
    checks += [a_worker_dies_of_it, well_until_it_failed]
    checks += [the_right_status] if played.scenario.is_alone else OF_SEVERAL
    return {check.__name__: [*check(played)] for check in checks}


def everything_ends(played: Played) -> Iterator[Verdict]:
    if played.kernel.spins:
        yield f"there were more than {MOST_CALLS} calls"
        return
    for host in played.hosts:
        if not host.node.is_down:
            is_running = any(p.code is None for p in host.launchers)
            yield is_running and f"the launch on {host.node.name} has not ended"


def nobody_is_left(played: Played) -> Iterator[Verdict]:
    """No process of a launch goes on for longer than the launch does."""
    if played.kernel.spins:
        return
    slow_s = ENDS_S + played.scenario.core_s + played.scenario.free_s + _lost_s(played)
    for host in played.hosts:
        if any(p.code is None for p in host.launchers) or host.node.is_down:
            continue
        above = [p for p in (*host.launchers, *host.guards) if p.code is not None]
        end = max((p.ended for p in above), default=played.kernel.now)
        for process in _not_admitted(played, host):
            is_left = process.is_alive or process.ended > end + slow_s
            yield is_left and f"{process} ({' '.join(process.command)}) is left"


def _not_admitted(played: Played, host: Host) -> list[Process]:
    """Without what goes on as docs/limits.md has it: if launcher and guard are both killed."""
    killed = {to for n, to in _signalled(played) if n == signal.SIGKILL}
    killed |= {p for p in host.launchers if p.code == -signal.SIGKILL}  # "return"
    if killed & {*host.launchers} and killed & {*host.guards}:
        return [] if played.scenario.is_refused("prctl") else host.workers
    if killed & {*host.guards} and played.scenario.is_refused("prctl"):
        # Nothing ends it then but its own alarm.
        return [p for p in host.processes if not p.command[0].startswith(LOOKUP)]
    return host.processes


def no_fault_of_ours(played: Played) -> Iterator[Verdict]:
    yield from played.kernel.tracebacks
    for host in played.hosts:
        yield from (words in host.err.text and words for words in (*OF_OURS, *NOT_SO))
        yield any(p.code == 70 for p in host.launchers) and "status 70"


def _last_attempt(host: Host) -> list[Process]:
    counts = [int(p.environ[COUNT]) for p in host.workers]
    return [p for p, n in zip(host.workers, counts, strict=True) if n == max(counts)]


def _first_failures(played: Played, host: Host) -> list[Process]:
    """Workers of the last attempt that may be named as those that failed first.

    They were about to end before anybody of the launch told them to, and before any of them had
    ended; or crashed so soon after it that the other may have failed because of that.
    """
    near_s, refused = START_S * _slowness(played), played.scenario.refused
    if refused and refused.call in ORDER:  # whoever looks late finds all that have ended
        near_s += _lost_s(played)
    return _may_be_first(
        _failed(played, host), near_s, CRASH_S * _slowness(played) + _lost_s(played)
    )


def _slowness(played: Played) -> float:
    """How much slower calls are than usual."""
    return played.scenario.call_s / Kernel.CALL_S


def _failed(played: Played, host: Host) -> list[Process]:
    """Workers of the last attempt that failed before the launch told them to end."""
    told: dict[int, float] = {}
    for sent in _sent_by_launch(played, host):
        told.setdefault(id(sent.to), sent.when)
    return [
        p for p in _last_attempt(host)
        if p.code and p.dying is not None and p.dying <= told.get(id(p), p.dying)
    ]  # fmt: skip


def _may_be_first(
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
    first = min(failed, key=_began)
    until, seen = first.ended, first.ended
    if _is_crash(first):
        seen = min(p.ended for p in failed)
        if ways_s is None:
            until = first.dying or 0.0
    gives_way = -(first.code or 0) == signal.SIGABRT
    return [
        p for p in failed
        if p.could_run_s(until, max(until, _began(p)))  # while all stands nobody can look
        <= (crash_s if _is_crash(p) or (gives_way and _dumps(p)) else near_s)
        or (_is_crash(p) and seen < first.ended and _began(p) <= seen + near_s)
        if not (ways_s and _is_surely_later(p, first, near_s, ways_s))
    ]  # fmt: skip


def _is_surely_later(
    other: Process, first: Process, near_s: float, ways_s: dict[Node, float]
) -> bool:
    """Whether a failure is known to be later than a crash that was the first.

    As it ends, it is looked at who dumps its core: on the same node at once, elsewhere once the hub
    has heard of it, and has told. A crash that has ended before may have begun as much earlier as
    it takes to hear from the hub.
    """
    if other is first or not _is_crash(first) or _is_crash(other):
        return False
    if _began(other) <= _began(first) + near_s:
        return False
    here, there = ways_s[first.node], ways_s[other.node]
    is_same = other.node is first.node
    is_looked_at = other.ended + (0.0 if is_same else here + there) + near_s < first.ended
    return is_looked_at or first.ended + near_s < other.ended + here + EARLY_S


def _began(process: Process) -> float:
    return process.dying or 0.0


def _is_crash(process: Process) -> bool:
    return _is_of_memory(process) or -(process.code or 0) in CRASHES


def _dumps(process: Process) -> bool:
    return process.died_of in CORES


def _is_of_memory(process: Process) -> bool:
    """Whether the kernel has killed it for that, or somebody has, which nobody can tell."""
    is_like_one = process.node.oom_kills and process.died_of == signal.SIGKILL
    return process.is_of_memory or bool(is_like_one)


def _sent_by_launch(played: Played, host: Host) -> Iterator[Sent]:
    """Signals of launcher and guard to those that still ran."""
    ours = {id(p) for p in (*host.launchers, *host.guards)}
    for sent in played.kernel.signals:
        is_ours = id(sent.sender) in ours and sent.signum in (signal.SIGTERM, signal.SIGKILL)
        if is_ours and (sent.to.code is None or sent.when < sent.to.ended):
            yield sent


def _signalled(played: Played) -> list[tuple[int, Process]]:
    return [(f.number, to) for _, f, to in played.happened if to is not None and f.what == "signal"]


def the_right_status(played: Played) -> Iterator[Verdict]:
    """Of one node: the first failure's, or the signal's that somebody has sent."""
    launcher, signalled = played.hosts[0].launcher, _signalled(played)
    code = launcher.code
    if code is None:
        return
    if (signal.SIGKILL, launcher) in signalled:
        yield code != -signal.SIGKILL and f"the launcher was killed, and has the code {code}"
        return
    allowed = _allowed(played)
    yield code not in allowed and f"status {code}, and right is one of {sorted(allowed)}"


def _allowed(played: Played) -> set[int]:
    """The statuses that are right for a launcher that nobody has killed."""
    host, scenario, signalled = played.hosts[0], played.scenario, _signalled(played)
    launcher = host.launcher
    told = [n for n, to in signalled if n in ENDS and to.comm in (launcher.comm, GUARD)]
    allowed = {128 + n for n in told}
    allowed |= {128 + n for n, to in signalled if n == signal.SIGKILL and to.comm == GUARD}
    if not host.guards:  # before it took note of signals
        allowed |= {-n for n, to in signalled if to is launcher}
        allowed |= {-signal.SIGHUP for fault in scenario.faults if fault.to == "terminal"}
    codes = {p.code for p in _last_attempt(host)}
    if codes <= {0} or (told and len(codes) == 1 and min(codes, key=_number) >= 0):
        allowed |= {_number(code) for code in codes} or {0}
    if scenario.pause or scenario.disk is not None:
        allowed.add(LOST_OUTPUT)
    if scenario.is_needed_refused:
        allowed |= {REFUSED, WRONG_USE, LOST_OUTPUT}
    limit = scenario.flag("--timeout")
    if limit and launcher.ended - launcher.start >= float(limit):
        allowed.add(TIMED_OUT)
    is_said = "no output from any rank" in host.err.text or scenario.pause
    if scenario.flag("--on-hang") and is_said:
        allowed.add(TIMED_OUT)
    failures = [_number(p.code) for p in _first_failures(played, host)]
    return allowed | {n if n >= 0 else 128 - n for n in failures}


def the_first_is_named(played: Played) -> Iterator[Verdict]:
    """Where somebody reads, a launch that ends with a failure says which was the first."""
    host, scenario = played.hosts[0], played.scenario
    if not scenario.is_alone or scenario.pause or _is_told(played) or scenario.refused:
        return
    failed = _first_failures(played, host)
    if not failed or host.launcher.code not in {_status(p.code) for p in failed}:
        return
    named = NAMED.search(host.err.text)
    ranks = [p.environ["RANK"] for p in failed]
    is_named = named is not None and named[1] in ranks
    yield not is_named and f"not named: rank {' or '.join(ranks)}"


def well_until_it_failed(played: Played) -> Iterator[Verdict]:
    """Of one node: for how long it had gone well is until others were told to end, at most.

    However long the first that failed takes to die.
    """
    host, is_late = played.hosts[0], played.scenario.refused or STILL & _whats(played)
    said = WELL.search(host.err.text) if played.scenario.is_alone and not is_late else None
    last = _last_attempt(host) if said else []
    told = [each.when for each in _sent_by_launch(played, host) if each.to in last]
    for first in (p for p in last if said and p.environ["RANK"] == said[1]):
        well_s, late_s = min((*told, first.ended)) - first.start, START_S * _slowness(played)
        is_long = float(said[2]) > well_s + ROUNDED_S + late_s
        yield is_long and f"{said[0]}, and it failed after {well_s:.3f} s"


def _status(code: int | None) -> int:
    """As a shell has it."""
    return 128 - code if code and code < 0 else code or 0


def _number(code: int | None) -> int:
    return code or 0


def _who_is_apart(played: Played) -> set[int]:
    """Nodes that somebody has cut off, killed, or told to end alone."""
    apart = {f.node for _, f, _ in played.happened if f.what in (*AWAY, "power", "return")}
    for number, host in enumerate(played.hosts):
        if any((p.code or 0) < 0 for p in host.launchers):
            apart.add(number)  # it had not come so far that it could tell anybody
        above = (*host.launchers, *host.guards)
        for n, to in _signalled(played):
            is_elastic = played.scenario.is_elastic
            if to in above and (n == signal.SIGKILL or (is_elastic and n in ENDS)):
                apart.add(number)
    return apart | _who_comes_too_late(played)


def _who_comes_too_late(played: Played) -> set[int]:
    """Nodes whose launcher was stopped before it had joined, perhaps until the others had ended.

    Those wait some seconds for it, or begin without it where they may.
    """
    is_elastic = played.scenario.is_elastic
    stops = [f for _, f, _ in played.happened if f.what == "stop"]
    stopped = {f.node for f in stops if is_elastic or f.for_s > LATE_S}
    return {number for number in stopped if not played.hosts[number].workers}


def _is_mute(played: Played) -> bool:
    """Whether names are not told in time."""
    return played.scenario.mute is not None and played.scenario.mute[1] > TALK_S


def _whats(played: Played) -> set[str]:
    return {f.what for _, f, _ in played.happened}


def one_status(played: Played) -> Iterator[Verdict]:
    """Of several nodes: all end alike that nobody has cut off, killed, or told to end."""
    apart = _who_is_apart(played)
    if played.scenario.unable is not None:
        apart.add(played.scenario.unable)
    apart |= _refused(played)
    ends = [id(to) for n, to in _signalled(played) if n in ENDS]
    if len(set(ends)) < len(ends):
        return  # who is told twice does not wait until somebody knows
    is_deaf = bool(played.scenario.mute) or played.scenario.is_refused("accept4")
    is_early = _is_told(played) or bool(_refused(played)) or played.scenario.unable is not None
    is_unheard = is_deaf and is_early  # such a hub does not hear all
    if _is_mute(played) or is_unheard:
        return  # those who come late find nobody
    if 0 in apart or _whats(played) & {"freeze", "digits"}:
        return  # the hub is lost, and each ends as it hears of it
    hosts = [host for number, host in enumerate(played.hosts) if number not in apart]
    codes = {host.node.name: _code(played, host) for host in hosts if host.launchers}
    yield len(set(codes.values())) > 1 and f"they end unlike each other: {codes}"


def _is_told(played: Played) -> bool:
    """Whether somebody has sent a signal that ends something above workers."""
    above = {id(p) for host in played.hosts for p in (*host.launchers, *host.guards)}
    return any(id(to) in above for n, to in _signalled(played) if n not in (10, 12, 28))


def _code(played: Played, host: Host) -> int | None:
    """The status of a node; that nobody reads what it says is its own affair."""
    code = host.launcher.code
    return 0 if played.scenario.pause and code == LOST_OUTPUT else code


def _has_died(played: Played) -> bool:
    """Whether a launcher has died of a signal: it had not come so far that it would catch it."""
    return any((p.code or 0) < 0 for host in played.hosts for p in host.launchers)


def _first_start(played: Played) -> float | None:
    return min((p.start for host in played.hosts for p in host.workers), default=None)


def _cuts_are_early(played: Played) -> bool:
    """Whether all cuts were mended before the first start."""
    begun = _first_start(played) or played.kernel.now
    return all(when + f.for_s < begun for when, f, _ in played.happened if f.what in AWAY)


def the_right_status_of_all(played: Played) -> Iterator[Verdict]:
    """Where no node is lost, and nobody is told to end: the first failure's, of all nodes."""
    scenario, whats = played.scenario, _whats(played)
    if whats & {"freeze", "power", "return", "digits"} or _is_told(played) or _has_died(played):
        return
    if _refused(played) or scenario.unable is not None or not _cuts_are_early(played):
        return
    if _is_mute(played):
        return
    codes = {_code(played, host) for host in played.hosts if host.launchers}
    if not any(host.workers for host in played.hosts):
        if any(f.for_s > LOST_S for _, f, _ in played.happened if f.what in AWAY):
            return
        yield f"there were no workers, and the launchers have ended with {codes}"
        return
    counts = [int(p.environ[COUNT]) for host in played.hosts for p in host.workers]
    last = [
        host for host in played.hosts if any(p in _last(host, max(counts)) for p in host.workers)
    ]
    failed = [p for host in last for p in _failed(played, host) if p in _last(host, max(counts))]
    if codes == {TIMED_OUT} and HUNG in "".join(host.err.text for host in last):
        return
    if whats & STILL and failed:
        return  # whoever looks at them may look late
    crash_s = CRASH_S * _slowness(played) + 2 * max(scenario.latencies, default=0.0)
    firsts = _may_be_first(failed, NEAR_S * _slowness(played), crash_s, _ways_s(played))
    allowed = {_status(p.code) for p in firsts} or {0}
    yield not codes <= allowed and f"statuses {codes}, and right is one of {sorted(allowed)}"
    named = NAMED.search(played.hosts[0].err.text)
    ranks = {p.environ["RANK"] for p in firsts}
    is_read = not scenario.pause and codes != {0}
    yield is_read and named is None and f"the hub does not name rank {' or '.join(sorted(ranks))}"
    if named:
        yield (
            named[1] not in ranks
            and f"rank {named[1]} is named, and first was one of {sorted(ranks)}"
        )


def _ways_s(played: Played) -> dict[Node, float]:
    """How long a message takes from each node to the hub's."""
    network, hub = played.kernel.network, played.hosts[0].node
    return {host.node: network.delay_s(host.node, hub) for host in played.hosts}


def _last(host: Host, count: int) -> list[Process]:
    return [p for p in host.workers if int(p.environ[COUNT]) == count]


def _refused(played: Played) -> set[int]:
    """Nodes whose launcher was told otherwise than the hub's."""
    argvs = played.scenario.argvs
    count = argvs[0].count("--max-restarts")
    return {i for i, argv in enumerate(argvs) if argv.count("--max-restarts") != count}


def who_will_not_come_is_not_waited_for(played: Played) -> Iterator[Verdict]:
    """All end soon where there are too few, and with the status of whoever cannot come."""
    scenario = played.scenario
    is_one_missing = scenario.unable is not None or _refused(played)
    if not is_one_missing or scenario.is_elastic or _whats(played) - {"silent", "stop"}:
        return
    if _is_told(played) or scenario.mute or scenario.refused:
        return
    last, late = (
        max(p.start for h in played.hosts for p in h.launchers),
        _who_comes_too_late(played),
    )
    for host in (host for number, host in enumerate(played.hosts) if number not in late):
        code, ended = host.launcher.code, host.launcher.ended
        late_s = ended - last - _lost_s(played)
        if code is not None:
            is_wrong = late_s > TALK_S or code != WRONG_USE
            words = f"{host.node.name} ended with {code}, {late_s:.1f} s after all had begun"
            yield is_wrong and words


def who_is_gone_is_not_waited_for(played: Played) -> Iterator[Verdict]:
    """Nor a launcher that somebody has killed after it had joined, before the first start."""
    scenario, happened = played.scenario, played.happened
    if len(happened) != 1 or scenario.is_elastic or scenario.refused or scenario.mute:
        return
    when, fault, to = happened[0]
    host = played.hosts[fault.node]
    began = [p.start for other in played.hosts for p in other.launchers]
    if (
        fault.number != signal.SIGKILL
        or to not in (*host.launchers, *host.guards)
        or not fault.node
    ):
        return
    joined = max(host.launcher.start + 0.1, played.hosts[0].launcher.start + 1.2)
    joined += ROUNDS * max(scenario.latencies, default=0.0)
    if not joined < when < (_first_start(played) or played.kernel.now) or _refused(played):
        return
    for other in played.hosts:
        late_s = other.launcher.ended - max(when, *began)
        if other is not host:
            words = f"{other.node.name} ended {late_s:.1f} s after nobody could come any more"
            yield late_s > TALK_S and words


def they_meet(played: Played) -> Iterator[Verdict]:
    """Whatever comes between, nodes that live find each other as soon as they can."""
    scenario = played.scenario
    if _is_told(played) or _refused(played) or scenario.unable is not None or _is_mute(played):
        return
    if _whats(played) & {"power", "return", "digits"} or not _cuts_are_early(played):
        return
    if _has_died(played) or any(p.code is None for host in played.hosts for p in host.launchers):
        return
    can = max(p.start for host in played.hosts for p in host.launchers)
    for when, f, _ in played.happened:
        can = max(can, when + f.for_s) if f.what in STILL else can
    if scenario.refused and scenario.is_refused("accept4"):
        can = max(can, 1000.0 + scenario.refused.since_s + scenario.refused.for_s)
    late_s = (_first_start(played) or played.kernel.now) - can
    yield late_s > CALL_S + TALK_S and f"the first workers began {late_s:.1f} s after they could"


def who_comes_back_is_waited_for(played: Played) -> Iterator[Verdict]:
    """A launcher that is killed, and started again soon, takes part in another start."""
    scenario, returned = played.scenario, [(when, f) for when, f, _ in played.happened]
    if (
        len(returned) != 1
        or returned[0][1].what != "return"
        or not scenario.restarts
        or scenario.flag("--on-hang")
    ):
        return
    if scenario.refused or scenario.mute or _refused(played) or scenario.unable is not None:
        return
    ends = [step for script in scenario.scripts for step in script.steps if isinstance(step, End)]
    if any(end.code for end in ends):
        return
    when = returned[0][0]
    running = all(
        any(p.start < when and not p.ended <= when for p in host.workers) for host in played.hosts
    )
    if not running:
        return
    for number, host in enumerate(played.hosts):
        is_late = scenario.is_elastic and number == returned[0][1].node  # the others go on at once
        is_waited_for = returned[0][1].for_s > scenario.grace_s + 1.0 and not scenario.is_elastic
        if is_waited_for and not scenario.pause:
            words = "to come back" if 0 in (number, returned[0][1].node) else ""
            is_there = number != returned[0][1].node
            yield is_there and words not in host.err.text and f"{host.node.name} does not say it"
        if not is_late:
            code = host.launcher.code
            is_well = code == 0 or (scenario.pause and code == LOST_OUTPUT)
            yield not is_well and f"{host.node.name} ended with {code}, though all could go on"


def what_to_type_starts_it_again(played: Played) -> Iterator[Verdict]:
    """Where somebody is waited for, the line that is said is as that launcher was started."""
    for host in played.hosts:
        for who, line in AGAIN_LINE.findall(host.err.text):
            known = [
                n for n, each in enumerate(played.hosts)
                if who in (each.node.name, f"the hub at {each.node.address}", "the hub at node0")
            ]  # fmt: skip
            if not known:  # several are named in one line, of whom each has its own
                continue
            number = known[0]
            argv = played.scenario.argvs[number]
            words = shlex.split(line)
            typed = words[next(n for n, word in enumerate(words) if word.startswith("--")) :]
            is_hub = who.startswith("the hub")  # of which others know less
            try:
                lines = typed, [*argv, "--no-python", "sh", "worker"]
                one, other = (_as_read(each, is_hub) for each in lines)
            except UsageError as error:
                yield f"{line}: {error}"
                return
            yield one != other and f"to start {who} again is said {line}"


def _as_read(argv: list[str], is_hub: bool) -> Request:
    request = cli.parse(argv, {}, "python")._replace(given=())
    return request._replace(nproc=None) if is_hub else request


def who_is_told_ends(played: Played) -> Iterator[Verdict]:
    """A launcher that gets a signal to end does, whatever is slow elsewhere."""
    scenario = played.scenario
    for when, f, to in played.happened:
        host = played.hosts[f.node]
        if (
            f.what != "signal"
            or f.number not in ENDS
            or to not in host.launchers
            or to.code is None
        ):
            continue
        late_s = to.ended - when - _lost_s(played)
        most_s = 2 * scenario.grace_s + scenario.core_s + MARGIN_S
        yield late_s > most_s and f"{to} ended {late_s:.1f} s after it was told to"


def name_servers_are_spared(played: Played) -> Iterator[Verdict]:
    """All ports of an attempt are of one answer; the next attempt asks some time later."""
    if _who_is_apart(played) or _is_told(played) or _refused(played):
        return  # who is told to end seeks the others at once, as do those whose hub is lost
    for number, host in enumerate(played.hosts):
        if number == played.scenario.unable:
            continue  # it asks first whether it was to have the hub
        asked = [
            each for each in played.kernel.network.asked
            if each.who in host.processes and each.who.command[0].startswith(LOOKUP)
        ]  # fmt: skip
        for one, other in itertools.pairwise(asked):
            after_s = other.when - one.until
            words = f"{host.node.name} asks for {other.name} {after_s:.4f} s after an answer"
            yield after_s < AGAIN_S and one.name == other.name and words


def _lost_s(played: Played) -> float:
    times = sum(f.for_s for _, f, _ in played.happened if f.what in STILL)
    return times + sum(played.scenario.pause or (0, 0))


def one_world(played: Played) -> Iterator[Verdict]:
    """Workers of two epochs do not run at the same time, on nodes that could be told."""
    workers = [(host, p) for host in played.hosts for p in host.workers]
    apart = {
        f.node for _, f, _ in played.happened if f.what in ("stop", "freeze", "pause", "power")
    }
    apart |= {f.node for _, f, _ in played.happened if f.to == "both"}  # see `_not_admitted`
    for number, host in enumerate(played.hosts):
        if number in apart:
            workers = [(other, p) for other, p in workers if other is not host]
    spans: dict[int, tuple[float, float]] = {}
    for _, p in workers:
        count = int(p.environ[COUNT])
        began, ended = spans.get(count, (p.start, 0.0))
        spans[count] = min(began, p.start), max(ended, p.ended or played.kernel.now)
    for count, (began, _) in spans.items():
        if count - 1 in spans:
            is_early = spans[count - 1][1] > began + 1e-6
            yield is_early and f"workers of start {count} began before those before had ended"


def the_whole_grace(played: Played) -> Iterator[Verdict]:
    """Who was told to end has its whole grace of time in which it could run."""
    again = sum(f.number == signal.SIGINT for _, f, _ in played.happened) > 1
    is_killed = any(n == signal.SIGKILL for n, _ in _signalled(played))
    if again or is_killed or _cannot_hear_stops(played) or played.scenario.is_needed_refused:
        return
    for host in played.hosts:
        if all(p.code != -signal.SIGKILL for p in host.launchers):  # "return" kills it
            yield from _graces(played, host)


def _graces(played: Played, host: Host) -> Iterator[Verdict]:
    scenario, stops = played.scenario, _stops(played)
    grace_s = scenario.grace_s
    if not scenario.is_alone:  # a worker may have failed on another node
        grace_s = min(grace_s, FAILURE_GRACE_S)
    elif _first_failures(played, host) or any(p.code for p in host.guards[1:]):
        # Or a fork of the guard has died before it became a worker.
        grace_s = min(grace_s, float(scenario.flag("--failure-grace") or grace_s))
    for worker in host.workers:
        sent = [each for each in _sent_by_launch(played, host) if each.to is worker]
        told = next((each for each in sent if each.signum == signal.SIGTERM), None)
        killed = next((each for each in sent if each.signum == signal.SIGKILL), None)
        if told is None or killed is None:
            continue
        had_s = worker.could_run_s(told.when, killed.when)
        is_short = had_s < grace_s * 0.99 - UNSEEN_S * stops
        yield is_short and f"{worker} had {had_s:.3f} s of {grace_s:g}"


def a_worker_dies_of_it(played: Played) -> Iterator[Verdict]:
    """Who does nothing about SIGTERM dies of it, also where it was no worker yet."""
    scripts = played.scenario.scripts
    for host in (host for host in played.hosts if not host.node.is_down):
        for sent in _sent_by_launch(played, host):
            worker = sent.to
            if sent.signum != signal.SIGTERM or worker not in host.workers:
                continue
            script = scripts[int(worker.environ["RANK"]) % len(scripts)]
            if script.told is None and Ignore(signal.SIGTERM) not in script.steps:
                lived_s = worker.could_run_s(sent.when, worker.dying or played.kernel.now)
                is_deaf = lived_s > DIES_S * _slowness(played)
                yield is_deaf and f"{worker} lived for {lived_s:.3f} s after it was told to end"


def the_grace_is_said(played: Played) -> Iterator[Verdict]:
    """Of whom it is said how long it still ran after it was told to end had that time."""
    if any(f.number == signal.SIGINT for _, f, _ in played.happened):
        return  # a worker has got it before it was told
    for host in played.hosts:
        told: dict[int, float] = {}
        ran = []
        for sent in _sent_by_launch(played, host):
            if sent.signum == signal.SIGTERM:  # also of one that is no worker yet
                told.setdefault(id(sent.to), sent.when)
            ran.append(sent.when - told.get(id(sent.to), sent.when))
        for said in OVERDUE.finditer(host.err.text):
            most_s = max(ran, default=0.0) or float(said[1])  # 0: they had ended, and none was told
            yield most_s < float(said[1]) * 0.99 and f"{said[0]}, after {most_s:.3f} s"


def _cannot_hear_stops(played: Played) -> bool:
    """Only waitid tells that a worker was stopped."""
    return played.scenario.is_refused("waitid") and "stop" in _whats(played)


def the_grace_of_what_is_left(played: Played) -> Iterator[Verdict]:
    """What workers that have ended well leave has the grace in which it could run."""
    is_to_end = _is_told(played) or played.scenario.flag("--timeout") is not None
    for host in played.hosts:
        is_killed = any(p.code == -signal.SIGKILL for p in host.launchers)
        if host.launchers and host.workers and not is_killed:
            is_well = host.launcher.code == 0 and not is_to_end
            yield from _graces_of_what_is_left(played, host, is_well)


def _graces_of_what_is_left(played: Played, host: Host, is_well: bool) -> Iterator[Verdict]:
    """It is told to end, and killed if it does not; at once only where the launch is to end."""
    grace_s = played.scenario.grace_s
    ended = max(p.ended for p in host.workers)
    workers, stops = {id(p) for p in host.workers}, _stops(played)
    told = set()
    for sent in _sent_by_launch(played, host):
        is_left = sent.to.player is not None and id(sent.to) not in workers
        if not is_left or sent.when < ended:
            continue
        if sent.signum == signal.SIGTERM:
            told.add(id(sent.to))
        elif not is_well:
            continue
        else:
            yield id(sent.to) not in told and f"{sent.to} was killed, and not told to end before"
        had_s = sent.to.could_run_s(ended, sent.when)
        is_short = had_s < grace_s * 0.99 - UNSEEN_S * stops
        yield is_short and f"{sent.to} had {had_s:.3f} s of {grace_s:g}"


def _stops(played: Played) -> int:
    return sum(f.what in ("stop", "freeze", "pause") for _, f, _ in played.happened)


def the_old_limit(played: Played) -> Iterator[Verdict]:
    """Workers have the limit of open files that the launcher was started with."""
    for process in (p for host in played.hosts for p in host.workers):
        most = process.files_most
        yield most != played.scenario.files_most and f"{process} may have {most} open files"


def silent_in_its_own_time(played: Played) -> Iterator[Verdict]:
    """Nobody is killed for silence in time in which it could not speak."""
    limit = played.scenario.flag("--hang-timeout")
    if _cannot_hear_stops(played) or played.scenario.flag("--timeout"):
        return
    hosts = [host for host in played.hosts if host.launchers and host.workers]
    said = "".join(host.err.text for host in hosts)
    if limit is None or HUNG not in said or any(h.launcher.code != TIMED_OUT for h in hosts):
        return
    told = [
        each for host in hosts for each in _sent_by_launch(played, host)
        if each.signum == signal.SIGTERM and each.to in _last_attempt(host)
    ]  # fmt: skip
    if not told:
        return
    stops, late_s = _stops(played), STACKS_S * _slowness(played)
    late_s += 0.0 if played.scenario.is_alone else HEARD_S
    late_s += STACK_S * sum(script.shows_stacks for script in played.scenario.scripts)
    spoke = [
        first.to.could_run_s(
            max((when for when in said if when <= first.when - late_s), default=first.to.start),
            first.when,
        )
        for first in told
        for said in [first.to.player.said if first.to.player else ()]
    ]
    is_short = min(spoke) < float(limit) * 0.99 - UNSEEN_S * stops
    words = f"ended for silence after {min(spoke):.3f} s of {limit} in which a rank could speak"
    yield is_short and words


def a_hang_is_ended(played: Played) -> Iterator[Verdict]:
    """Where all ranks are silent for so long, and nothing else happens."""
    scenario, limit = played.scenario, played.scenario.flag("--hang-timeout")
    if limit is None or not scenario.flag("--on-hang") or played.happened or scenario.refused:
        return
    if scenario.pause or scenario.unable is not None or scenario.mute:
        return
    for last in _attempts(played):
        began, end = max(p.start for p in last), min(p.ended for p in last)
        said = {when for p in last for when in p.player.said if began < when < end}
        told = [
            each.when for each in played.kernel.signals
            if each.to in last and each.signum in (signal.SIGTERM, signal.SIGKILL)
        ]  # fmt: skip
        times = sorted((began, *said, min(end, *told) if told else end))
        silent_s = max(b - a for a, b in itertools.pairwise(times))
        is_long = silent_s > float(limit) + HUNG_S * _slowness(played)
        yield is_long and f"nobody has said anything for {silent_s:.1f} s of {limit}"


def _attempts(played: Played) -> Iterator[list[Process]]:
    """The workers of each start, of all nodes."""
    found: dict[str, list[Process]] = {}
    for process in (p for host in played.hosts for p in host.workers):
        found.setdefault(process.environ[COUNT], []).append(process)
    return iter(found.values())


def the_guard_ends_by_itself(played: Played) -> Iterator[Verdict]:
    """No launcher kills its guard: that says how the workers ended, and shows what they wrote."""
    for host in played.hosts:
        killed = [
            sent.sender for sent in played.kernel.signals
            if sent.signum == signal.SIGKILL and sent.to in host.guards[:1]
        ]  # fmt: skip
        yield any(p in host.launchers for p in killed) and "a launcher has killed its guard"


def starts_are_counted(played: Played) -> Iterator[Verdict]:
    """From 0, in what workers are told."""
    counts = {int(p.environ[COUNT]) for host in played.hosts for p in host.workers}
    is_plain = played.scenario.is_alone and not (played.scenario.refused or played.happened)
    if counts and is_plain:  # else nobody of the first may have become a worker
        yield counts != {*range(len(counts))} and f"of starts is told {counts}"


def a_place_of_its_own(played: Played) -> Iterator[Verdict]:
    """A worker alone on its node shares the launcher's terminal; each of several has a session.

    It is told of a signal that asks for its stacks where somebody may ask, and who it is itself: by
    that it knows that it is the one to answer, and none of those which it starts.
    """
    may_ask = played.scenario.flag("--hang-timeout") is not None
    for process in (p for host in played.hosts for p in host.workers):
        is_told = STACK_SIGNAL in process.environ
        yield is_told != may_ask and f"{process} is told of a signal: {is_told}"
        told = process.environ.get(WITNESS)
        yield told != str(process.pid) and f"{process} is told that it is {told}"
    if played.scenario.is_refused("setsid"):
        return
    for host in played.hosts:
        for process in host.workers:
            if process.environ["LOCAL_WORLD_SIZE"] != "1":
                yield process.session != process.pid and f"{process} has no session of its own"
            elif not any(p.code == -signal.SIGKILL for p in host.launchers):
                groups = {p.group for p in host.launchers}
                yield process.group not in groups and f"{process} is not with its launcher"


def the_result_is_written(played: Played) -> Iterator[Verdict]:
    """The file of --result has the status, and each rank with its own."""
    scenario, host = played.scenario, played.hosts[0]
    path = scenario.flag("--result")
    if path is None or scenario.refused or _is_any_killed(played) or not host.launchers:
        return
    if scenario.disk is not None:
        return
    if host.node.is_down or (host.launcher.code or 0) < 0 or len(host.launchers) > 1:
        return
    if not host.workers and host.launcher.code == WRONG_USE:
        return
    try:
        text = host.node.files.find(path).content
    except OSError:
        yield f"there is no {path}"
        return
    record = json.loads(text)
    status = record["status"]
    right = {_code(played, host), host.launcher.code}
    yield status not in right and f"status {status} is written of {host.launcher.code}"
    if _who_is_apart(played) or not host.workers or _whats(played) & {"freeze", "digits"}:
        return
    if any(p.code for p in host.guards[1:]):
        return  # a fork of the guard has died before it became a worker
    last = [*_attempts(played)][-1]
    codes = {int(p.environ["RANK"]): _status(p.code) for p in last}
    codes = dict.fromkeys(range(int(last[0].environ["WORLD_SIZE"]))) | codes
    written = {each["rank"]: each["status"] for each in record["ranks"]}
    is_so = all(code in (written.get(rank, -1), None) for rank, code in codes.items())
    is_wrong = not is_so or written.keys() != codes.keys()
    yield is_wrong and f"of ranks is written {written}, and they ended with {codes}"


def nothing_is_said_twice(played: Played) -> Iterator[Verdict]:
    """Of what the launch says itself; but for who is waited for, and what each start may say."""
    if played.scenario.restarts or played.scenario.flag("--hang-timeout"):
        return
    for host in played.hosts:
        if len(host.launchers) > 1:
            continue  # each says its own
        said = (each for each in OURS.findall(host.err.text) if not AGAIN.search(each))
        lines = Counter(said)
        yield from (f"said {n} times: {line}" for line, n in lines.items() if n > 1)
        yield False


def no_longer_grace(played: Played) -> Iterator[Verdict]:
    """Who was told to end, and does not, is killed as soon as the grace is over."""
    if _cannot_hear_stops(played) or played.scenario.is_needed_refused:
        return
    most_s = max(played.scenario.grace_s, float(played.scenario.flag("--failure-grace") or 0))
    if played.scenario.pause:  # who reads is waited for, with what is said of the end
        most_s += say.PATIENCE_S
    for host in played.hosts:
        for worker in host.workers:
            sent = [each for each in _sent_by_launch(played, host) if each.to is worker]
            told = next((each for each in sent if each.signum == signal.SIGTERM), None)
            killed = next((each for each in sent if each.signum == signal.SIGKILL), None)
            if told is None or killed is None or killed.sender is not told.sender:
                continue
            if any(f.what == "stop" and to is not told.sender for _, f, to in played.happened):
                continue  # the grace of one that is stopped stands
            had_s = told.sender.could_run_s(told.when, killed.when)
            is_long = had_s > most_s + GRACE_LATE_S * _slowness(played)
            yield is_long and f"{worker} had {had_s:.3f} s of {most_s:g}"


def it_ends_in_time(played: Played) -> Iterator[Verdict]:
    """Once a launch is to end it does, within the grace, and what its parts wait for each other."""
    scenario = played.scenario
    if not scenario.is_alone and (scenario.restarts or not _first_start(played)):
        return  # others may come, or come back
    lost_s = sum(f.for_s for _, f, _ in played.happened) + sum(scenario.pause or (0, 0))
    slow_s = scenario.core_s + scenario.free_s
    most_s = 2 * scenario.grace_s + slow_s + lost_s + MARGIN_S
    counts = [int(p.environ[COUNT]) for host in played.hosts for p in host.workers]
    failures = [
        p.ended for host in played.hosts for p in _first_failures(played, host)[:1]
        if int(p.environ[COUNT]) == max(counts)
    ]  # fmt: skip
    for host in played.hosts:
        if not host.launchers or host.launcher.code is None:
            continue
        if not (scenario.is_alone or host.workers) or len(host.launchers) > 1:
            continue  # it may have found nobody, or come back as all had ended
        told = [when for when, f, to in played.happened if f.number in ENDS and to is host.launcher]
        causes = [*told, *failures]
        if not causes:
            continue
        late_s = host.launcher.ended - min(causes)
        yield late_s > most_s and f"{host.node.name} ended {late_s:.1f} s after it was to"


# Our words may come between the parts of another's line that no pipe takes at once.
OURS = re.compile(r"spawnlaunch: [^\n]*\n")
AGAIN = re.compile(
    "waiting for|trying again|continued it|cannot start: "
)  # the last words of a worker are shown once more
AGAIN_LINE = re.compile(r"waiting up to \S+ s for (.*) to come back; start it there again: (.*)")
LINE = re.compile(r"^(?:\[[^]]+\] )?(r\d+'*) ([12]) (\d+)\.*$")


def all_output(played: Played) -> Iterator[Verdict]:
    """What workers wrote is shown whole, once, in its order; or the status says that it was not."""
    if _is_any_killed(played):
        return
    for host in played.hosts:
        if host.node.is_down or not host.launchers or host.launcher.code is None:
            continue
        if any(p.code == -signal.SIGKILL for p in host.launchers):  # "return"
            continue
        torn = any(to in host.workers for _, to in _signalled(played))  # one died as it wrote
        shown: dict[tuple[str, int], list[int]] = {}
        for stream, text in ((1, host.out.text), (2, host.err.text)):
            for line in OURS.sub("", text).splitlines():
                found = LINE.match(line)
                if found:
                    shown.setdefault((found[1], stream), []).append(int(found[3]))
                elif stream == 1 and not torn:  # which the launcher does not write to
                    yield f"a line that nobody wrote: {line!r}"
        if len(host.workers) == len({p.environ["RANK"] for p in host.workers}):
            is_limited = played.scenario.flag("--timeout") is not None
            is_hasty = bool(played.scenario.pause) or is_limited or _is_told(played)
            is_hasty |= played.scenario.is_needed_refused
            yield from _compared(host, shown, is_hasty)


def _compared(
    host: Host, shown: dict[tuple[str, int], list[int]], is_hasty: bool
) -> Iterator[Verdict]:
    for process in host.workers:
        player = process.player
        for stream in (1, 2):
            numbers = shown.get((player.name, stream), [])
            wanted = list(range(player.counts[stream]))
            cut = len(wanted)  # a signal may have come as it had written this one
            if numbers[cut : cut + 1] == [cut]:
                wanted.append(cut)
            if stream == 2:
                numbers = numbers[: len(wanted)]  # the report shows the last ones again
            is_said = "nobody read our" in host.err.text or host.launcher.code
            if not (is_hasty and is_said):
                words = f"{player.name} wrote {wanted} to {stream}, and shown are {numbers}"
                yield numbers != wanted and words


def all_of_it_is_kept(played: Played) -> Iterator[Verdict]:
    """With --log-dir a file has what a worker wrote, whole, whoever reads; or it is said."""
    scenario = played.scenario
    if scenario.flag("--log-dir") is None or _is_any_killed(played) or scenario.is_needed_refused:
        return
    for host in played.hosts:
        if not host.launchers or host.launcher.code is None:
            continue
        for process in host.workers:
            for stream, name in ((1, "stdout.log"), (2, "stderr.log")):
                place = f"attempt_{process.environ[COUNT]}/{process.environ['RANK']}/{name}"
                text = _kept(host, place)
                found = [LINE.match(line) for line in text.splitlines()]
                own = process.player.name
                numbers = [int(each[3]) for each in found if each and each[1] == own]
                count = process.player.counts[stream]
                is_whole = numbers[:count] == [*range(count)]
                is_read = not (scenario.pause or _is_told(played))
                is_read &= "nobody read our" not in host.err.text
                is_said = f"{place}: No space left" in host.err.text or not is_read
                if scenario.disk is not None and is_said:
                    is_whole = numbers == [*range(len(numbers))]
                yield not is_whole and f"{place} has {numbers} of {count} lines"


def memory_is_named(played: Played) -> Iterator[Verdict]:
    """That a worker was killed as memory ran out is said of it, and of no other launch."""
    for host in played.hosts:
        is_said = "out of memory" in host.err.text
        if not host.node.oom_kills:
            yield is_said and "memory has not run out"
            continue
        killed = {to for _, f, to in played.happened if f.what == "memory" and to in host.workers}
        named = NAMED.search(host.err.text)
        if named and any(p.environ["RANK"] == named[1] for p in _last_attempt(host) if p in killed):
            yield not is_said and f"rank {named[1]} was killed as memory ran out"


def _is_any_killed(played: Played) -> bool:
    return "memory" in _whats(played) or any(n == signal.SIGKILL for n, _ in _signalled(played))


def _kept(host: Host, place: str) -> str:
    """The file of that place below the directory of this run."""
    runs = host.node.files.find("/work/logs").entries
    return host.node.files.find(f"/work/logs/{next(iter(runs))}/{place}").content.decode()


OF_SEVERAL = [
    one_status, one_world, the_right_status_of_all, who_will_not_come_is_not_waited_for, they_meet,
    who_is_gone_is_not_waited_for, who_comes_back_is_waited_for, who_is_told_ends,
    what_to_type_starts_it_again, name_servers_are_spared,
]  # fmt: skip
