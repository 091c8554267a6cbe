"""What must hold of several nodes."""

import itertools
from collections.abc import Iterator

from tests.machine.node import Node
from tests.machine.play import Host, Played
from tests.machine.process import Process
from tests.machine.properties import facts
from tests.machine.scripts import COUNT, End

NEAR_S = 0.02  # by which times of two nodes may be unlike, once corrected for the link
AGAIN_S = 0.04  # after an answer, until a name server is asked once more
CALL_S = 30.0  # for others to come, where enough are there
TALK_S = 15.0  # for launchers to tell each other
LOST_S = 60.0  # after which a node that does not answer counts as lost


def _is_mute(played: Played) -> bool:
    """Whether names are not told in time."""
    return played.scenario.mute is not None and played.scenario.mute[1] > TALK_S


def one_status(played: Played) -> Iterator[facts.Verdict]:
    """Of several nodes: all end alike that nobody has cut off, killed, or told to end."""
    apart = facts.who_is_apart(played)
    if played.scenario.unable is not None:
        apart.add(played.scenario.unable)
    apart |= _refused(played)
    ends = [id(to) for n, to in facts.signalled(played) if n in facts.ENDS]
    if len(set(ends)) < len(ends):
        return  # who is told twice does not wait until somebody knows
    is_deaf = bool(played.scenario.mute) or played.scenario.is_refused("accept4")
    is_early = facts.is_told(played) or bool(_refused(played)) or played.scenario.unable is not None
    is_unheard = is_deaf and is_early  # such a hub does not hear all
    if _is_mute(played) or is_unheard:
        return  # those who come late find nobody
    if 0 in apart or facts.whats(played) & {"freeze", "digits"}:
        return  # the hub is lost, and each ends as it hears of it
    hosts = [host for number, host in enumerate(played.hosts) if number not in apart]
    codes = {host.node.name: facts.code(played, host) for host in hosts if host.launchers}
    yield len(set(codes.values())) > 1 and f"they end unlike each other: {codes}"


def _has_died(played: Played) -> bool:
    """Whether a launcher has died of a signal: it had not come so far that it would catch it."""
    return any((p.code or 0) < 0 for host in played.hosts for p in host.launchers)


def _cuts_are_early(played: Played) -> bool:
    """Whether all cuts were mended before the first start."""
    begun = facts.first_start(played) or played.kernel.now
    return all(when + f.for_s < begun for when, f, _ in played.happened if f.what in facts.AWAY)


def the_right_status_of_all(played: Played) -> Iterator[facts.Verdict]:
    """Where no node is lost, and nobody is told to end: the first failure's, of all nodes."""
    scenario, whats = played.scenario, facts.whats(played)
    if (
        whats & {"freeze", "power", "return", "digits"}
        or facts.is_told(played)
        or _has_died(played)
    ):
        return
    if _refused(played) or scenario.unable is not None or not _cuts_are_early(played):
        return
    if _is_mute(played):
        return
    codes = {facts.code(played, host) for host in played.hosts if host.launchers}
    if not any(host.workers for host in played.hosts):
        if any(f.for_s > LOST_S for _, f, _ in played.happened if f.what in facts.AWAY):
            return
        yield f"there were no workers, and the launchers have ended with {codes}"
        return
    counts = [int(p.environ[COUNT]) for host in played.hosts for p in host.workers]
    last = [
        host for host in played.hosts if any(p in _last(host, max(counts)) for p in host.workers)
    ]
    failed = [
        p for host in last for p in facts.failed(played, host) if p in _last(host, max(counts))
    ]
    if codes == {facts.TIMED_OUT} and facts.HUNG in "".join(host.err.text for host in last):
        return
    if whats & facts.STILL and failed:
        return  # whoever looks at them may look late
    crash_s = facts.CRASH_S * facts.slowness(played) + 2 * max(scenario.latencies, default=0.0)
    firsts = facts.may_be_first(failed, NEAR_S * facts.slowness(played), crash_s, _ways_s(played))
    allowed = {facts.status(p.code) for p in firsts} or {0}
    yield not codes <= allowed and f"statuses {codes}, and right is one of {sorted(allowed)}"
    named = facts.NAMED.search(played.hosts[0].err.text)
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


def who_will_not_come_is_not_waited_for(played: Played) -> Iterator[facts.Verdict]:
    """All end soon where there are too few, and with the status of whoever cannot come."""
    scenario = played.scenario
    is_one_missing = scenario.unable is not None or _refused(played)
    if not is_one_missing or scenario.is_elastic or facts.whats(played) - {"silent", "stop"}:
        return
    if facts.is_told(played) or scenario.mute or scenario.refused:
        return
    last, late = (
        max(p.start for h in played.hosts for p in h.launchers),
        facts.who_comes_too_late(played),
    )
    for host in (host for number, host in enumerate(played.hosts) if number not in late):
        code, ended = host.launcher.code, host.launcher.ended
        late_s = ended - last - facts.lost_s(played)
        if code is not None:
            is_wrong = late_s > TALK_S or code != facts.WRONG_USE
            words = f"{host.node.name} ended with {code}, {late_s:.1f} s after all had begun"
            yield is_wrong and words


def they_meet(played: Played) -> Iterator[facts.Verdict]:
    """Whatever comes between, nodes that live find each other as soon as they can."""
    scenario = played.scenario
    if facts.is_told(played) or _refused(played) or scenario.unable is not None or _is_mute(played):
        return
    if facts.whats(played) & {"power", "return", "digits"} or not _cuts_are_early(played):
        return
    if _has_died(played) or any(p.code is None for host in played.hosts for p in host.launchers):
        return
    can = max(p.start for host in played.hosts for p in host.launchers)
    for when, f, _ in played.happened:
        can = max(can, when + f.for_s) if f.what in facts.STILL else can
    if scenario.refused and scenario.is_refused("accept4"):
        can = max(can, 1000.0 + scenario.refused.since_s + scenario.refused.for_s)
    late_s = (facts.first_start(played) or played.kernel.now) - can
    yield (late_s > CALL_S + TALK_S and f"the first workers began {late_s:.1f} s after they could")


def who_comes_back_is_waited_for(played: Played) -> Iterator[facts.Verdict]:
    """A launcher that is killed, and started again soon, takes part in another start."""
    scenario, returned = played.scenario, [(when, f) for when, f, _ in played.happened]
    if (
        len(returned) != 1
        or returned[0][1].what != "return"
        or returned[0][1].node == 0  # the loss of the hub ends the launch
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
            words = "waiting for" if number == 0 else ""
            is_there = number != returned[0][1].node
            yield is_there and words not in host.err.text and f"{host.node.name} does not say it"
        if not is_late:
            code = host.launcher.code
            is_well = code == 0 or (scenario.pause and code == facts.LOST_OUTPUT)
            yield not is_well and f"{host.node.name} ended with {code}, though all could go on"


def who_is_told_ends(played: Played) -> Iterator[facts.Verdict]:
    """A launcher that gets a signal to end does, whatever is slow elsewhere."""
    scenario = played.scenario
    for when, f, to in played.happened:
        host = played.hosts[f.node]
        if (
            f.what != "signal"
            or f.number not in facts.ENDS
            or to not in host.launchers
            or to.code is None
        ):
            continue
        late_s = to.ended - when - facts.lost_s(played)
        most_s = 2 * scenario.grace_s + scenario.core_s + facts.MARGIN_S
        yield late_s > most_s and f"{to} ended {late_s:.1f} s after it was told to"


def name_servers_are_spared(played: Played) -> Iterator[facts.Verdict]:
    """All ports of an attempt are of one answer; the next attempt asks some time later."""
    if facts.who_is_apart(played) or facts.is_told(played) or _refused(played):
        return  # who is told to end seeks the others at once, as do those whose hub is lost
    for number, host in enumerate(played.hosts):
        if number == played.scenario.unable:
            continue  # it asks first whether it was to have the hub
        asked = [
            each for each in played.kernel.network.asked
            if each.who in host.processes and each.who.command[0].startswith(facts.LOOKUP)
        ]  # fmt: skip
        for one, other in itertools.pairwise(asked):
            after_s = other.when - one.until
            words = f"{host.node.name} asks for {other.name} {after_s:.4f} s after an answer"
            yield after_s < AGAIN_S and one.name == other.name and words


def one_world(played: Played) -> Iterator[facts.Verdict]:
    """Workers of two epochs do not run at the same time, on nodes that could be told."""
    workers = [(host, p) for host in played.hosts for p in host.workers]
    apart = {
        f.node for _, f, _ in played.happened if f.what in ("stop", "freeze", "pause", "power")
    }
    apart |= {f.node for _, f, _ in played.happened if f.to == "both"}  # see `facts.not_admitted`
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
