"""What must hold of one node."""

import re
import signal
from collections.abc import Iterator

from tests.machine.play import Played
from tests.machine.properties import facts
from tests.machine.scripts import COUNT

ROUNDED_S = 0.06  # of a time that is said to a tenth of a second
WELL = re.compile(facts.NAMED.pattern + r"[^;\n]* after (\S+) s")


def the_right_status(played: Played) -> Iterator[facts.Verdict]:
    """Of one node: the first failure's, or the signal's that somebody has sent."""
    launcher, signalled = played.hosts[0].launcher, facts.signalled(played)
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
    host, scenario, signalled = played.hosts[0], played.scenario, facts.signalled(played)
    launcher = host.launcher
    told = [n for n, to in signalled if n in facts.ENDS and to.comm in (launcher.comm, facts.GUARD)]
    allowed = {128 + n for n in told}
    allowed |= {128 + n for n, to in signalled if n == signal.SIGKILL and to.comm == facts.GUARD}
    if not host.guards:  # before it took note of signals
        allowed |= {-n for n, to in signalled if to is launcher}
        allowed |= {-signal.SIGHUP for fault in scenario.faults if fault.to == "terminal"}
    codes = {p.code for p in facts.last_attempt(host)}
    if codes <= {0} or (told and len(codes) == 1 and min(codes, key=_number) >= 0):
        allowed |= {_number(code) for code in codes} or {0}
    if scenario.pause or scenario.disk is not None:
        allowed.add(facts.LOST_OUTPUT)
    if scenario.is_needed_refused:
        allowed |= {facts.REFUSED, facts.WRONG_USE, facts.LOST_OUTPUT}
    limit = scenario.flag("--timeout")
    if limit and launcher.ended - launcher.start >= float(limit):
        allowed.add(facts.TIMED_OUT)
    is_said = "no output from any rank" in host.err.text or scenario.pause
    is_said = is_said or facts.IS_STOPPED.search(host.err.text)
    if scenario.flag("--on-hang") and is_said:
        allowed.add(facts.TIMED_OUT)
    failures = [_number(p.code) for p in facts.first_failures(played, host)]
    return allowed | {n if n >= 0 else 128 - n for n in failures}


def the_first_is_named(played: Played) -> Iterator[facts.Verdict]:
    """Where somebody reads, a launch that ends with a failure says which was the first."""
    host, scenario = played.hosts[0], played.scenario
    if scenario.pause or facts.is_told(played) or scenario.refused:
        return
    failed = facts.first_failures(played, host)
    if not failed or host.launcher.code not in {facts.status(p.code) for p in failed}:
        return
    named = facts.NAMED.search(host.err.text)
    ranks = [p.environ["RANK"] for p in failed]
    is_named = named is not None and named[1] in ranks
    yield not is_named and f"not named: rank {' or '.join(ranks)}"


def well_until_it_failed(played: Played) -> Iterator[facts.Verdict]:
    """Of one node: for how long it had gone well is until others were told to end, at most.

    However long the first that failed takes to die.
    """
    host, is_late = played.hosts[0], played.scenario.refused or facts.STILL & facts.whats(played)
    said = None if is_late else WELL.search(host.err.text)
    last = facts.last_attempt(host) if said else []
    told = [each.when for each in facts.sent_by_launch(played, host) if each.to in last]
    for first in (p for p in last if said and p.environ["RANK"] == said[1]):
        well_s, late_s = (
            min((*told, first.ended)) - first.start,
            facts.START_S * facts.slowness(played),
        )
        is_long = float(said[2]) > well_s + ROUNDED_S + late_s
        yield is_long and f"{said[0]}, and it failed after {well_s:.3f} s"


def _number(code: int | None) -> int:
    return code or 0


def starts_are_counted(played: Played) -> Iterator[facts.Verdict]:
    """From 0, in what workers are told."""
    counts = {int(p.environ[COUNT]) for host in played.hosts for p in host.workers}
    is_plain = not (played.scenario.refused or played.happened)
    if counts and is_plain:  # else nobody of the first may have become a worker
        yield counts != {*range(len(counts))} and f"of starts is told {counts}"
