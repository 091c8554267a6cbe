"""Who is ended for its silence, or for the time that it took."""

import itertools
import signal
from collections.abc import Iterator

from tests.machine.play import Played
from tests.machine.properties import facts

STACKS_S = 0.01  # from the end of patience until it was seen where ranks are, and they are told
STACK_S = 0.25  # for one that shows its own
HEARD_S = 1.0  # until all nodes have heard that a rank of another one speaks
HUNG_S = 5.0  # until it is seen that nobody speaks, and stacks are told


def the_old_limit(played: Played) -> Iterator[facts.Verdict]:
    """Workers have the limit of open files that the launcher was started with."""
    for process in (p for host in played.hosts for p in host.workers):
        most = process.files_most
        yield most != played.scenario.files_most and f"{process} may have {most} open files"


def silent_in_its_own_time(played: Played) -> Iterator[facts.Verdict]:
    """Nobody is killed for silence in time in which it could not speak."""
    limit = played.scenario.flag("--hang-timeout")
    if played.scenario.flag("--timeout"):
        return
    hosts = [host for host in played.hosts if host.launchers and host.workers]
    said = "".join(host.err.text for host in hosts)
    if (
        limit is None
        or facts.HUNG not in said
        or facts.IS_STOPPED.search(said)
        or any(h.launcher.code != facts.TIMED_OUT for h in hosts)
    ):
        return
    told = [
        each for host in hosts for each in facts.sent_by_launch(played, host)
        if each.signum == signal.SIGTERM and each.to in facts.last_attempt(host)
    ]  # fmt: skip
    if not told:
        return
    stops, late_s = facts.stops(played), STACKS_S * facts.slowness(played)
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
    is_short = min(spoke) < float(limit) * 0.99 - facts.UNSEEN_S * stops
    words = f"ended for silence after {min(spoke):.3f} s of {limit} in which a rank could speak"
    yield is_short and words


def a_hang_is_ended(played: Played) -> Iterator[facts.Verdict]:
    """Where all ranks are silent for so long, and nothing else happens."""
    scenario, limit = played.scenario, played.scenario.flag("--hang-timeout")
    if limit is None or not scenario.flag("--on-hang") or played.happened or scenario.refused:
        return
    if scenario.pause or scenario.unable is not None or scenario.mute:
        return
    for last in facts.attempts(played):
        began, end = max(p.start for p in last), min(p.ended for p in last)
        said = {when for p in last for when in p.player.said if began < when < end}
        told = [
            each.when for each in played.kernel.signals
            if each.to in last and each.signum in (signal.SIGTERM, signal.SIGKILL)
        ]  # fmt: skip
        times = sorted((began, *said, min(end, *told) if told else end))
        silent_s = max(b - a for a, b in itertools.pairwise(times))
        is_long = silent_s > float(limit) + HUNG_S * facts.slowness(played)
        yield is_long and f"nobody has said anything for {silent_s:.1f} s of {limit}"
