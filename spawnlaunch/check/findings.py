"""What is wrong with the ranks' bindings, and its remedy: a pure function of all the facts."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from spawnlaunch import cpuset
from spawnlaunch.check import remedies
from spawnlaunch.check.facts import Facts
from spawnlaunch.check.verdict import FAIL, NOTE, Verdict
from spawnlaunch.rollcall import groups as rank_groups


def findings(everyone: Sequence[Facts]) -> list[Verdict]:
    """All that is wrong, node by node; what --oversubscribe asked for is noted alone."""
    by_host = sorted(everyone, key=lambda facts: (facts.host, facts.local_rank))
    found: list[Verdict] = []
    for host, ranks in groupby(by_host, key=lambda facts: facts.host):
        on_host = list(ranks)
        found += _shared(host, on_host)
        found += _shared_devices(host, on_host)
        found += _narrow(host, on_host)
    found += _without_device(everyone)
    for facts in everyone:
        found += _remote(facts)
        found += _far_memory(facts)
        found += _too_many_threads(facts)
        found += _drifted(facts)
    return found


def _cpus(text: str) -> cpuset.CpuSet:
    return cpuset.parse(text) if text else cpuset.EMPTY


def _of_rank(name: str, facts: Facts, said: str, remedy: str) -> Verdict:
    return Verdict(name, FAIL, f"rank {facts.rank} on {facts.host} {said}", remedy, (facts.rank,))


def _status_of_sharing(ranks: Sequence[Facts]) -> str:
    return NOTE if any(facts.oversubscribed for facts in ranks) else FAIL


def _shared(host: str, ranks: Sequence[Facts]) -> Iterator[Verdict]:
    """Ranks whose masks overlap, each group of them once."""
    groups: list[tuple[list[int], cpuset.CpuSet]] = []
    for facts in ranks:
        mine = _cpus(facts.cpus)
        touching = [group for group in groups if group[1] & mine]
        others = [rank for group in touching for rank in group[0]]
        cpus = mine.union(*(group[1] for group in touching))
        groups = [group for group in groups if group not in touching]
        groups.append(([*others, facts.rank], cpus))
    for members, cpus in groups:
        if len(members) > 1:
            here = [facts for facts in ranks if facts.rank in members]
            said = f"on {host} ranks {cpuset.format(members)} share the CPUs {cpuset.format(cpus)}"
            how, remedy = _status_of_sharing(here), remedies.of_shared(here, ranks)
            yield Verdict("shared-cores", how, said, remedy, tuple(sorted(members)))


def _shared_devices(host: str, ranks: Sequence[Facts]) -> Iterator[Verdict]:
    """Ranks that take one device, each group of them once."""
    groups: dict[int, list[Facts]] = {}
    for facts in ranks:
        if facts.device is not None:
            groups.setdefault(facts.device, []).append(facts)
    for members in groups.values():
        if len(members) > 1:
            numbers = tuple(sorted(facts.rank for facts in members))
            who, device = rank_groups.ranks_of(numbers), members[0].device_address
            how, remedy = _status_of_sharing(members), remedies.of_shared_device(members[0])
            said = f"on {host} {who} take one device, {device}"
            yield Verdict("shared-device", how, said, remedy, numbers)


def _without_device(everyone: Sequence[Facts]) -> Iterator[Verdict]:
    """Ranks that see no device where others see some."""
    without = [facts for facts in everyone if not facts.devices_seen]
    if without and len(without) < len(everyone):
        numbers = tuple(facts.rank for facts in without)
        hosts = ", ".join(dict.fromkeys(facts.host for facts in without))
        who = rank_groups.ranks_of(numbers)
        said = f"{who} on {hosts}: no device is seen there, and others see some"
        yield Verdict("no-device", FAIL, said, remedies.NO_DEVICE, numbers)


def _narrow(host: str, ranks: Sequence[Facts]) -> Iterator[Verdict]:
    """Ranks on one core of a machine that has at least two for each of them."""
    narrow = [
        facts for facts in ranks if facts.cores == 1 and facts.cores_of_node >= 2 * len(ranks)
    ]
    if narrow:
        squeezed = tuple(facts.rank for facts in narrow)
        there = f"of {ranks[0].cores_of_node} for {len(ranks)} ranks"
        said = f"on {host} ranks {cpuset.format(squeezed)} have one core each, {there}"
        yield Verdict("one-core", FAIL, said, remedies.of_narrow(narrow, ranks), squeezed)


def _remote(facts: Facts) -> Iterator[Verdict]:
    if facts.device_cpus is None or not facts.cpus:
        return
    here, near = _cpus(facts.cpus), _cpus(facts.device_cpus)
    homes = _cpus(facts.numa)
    if here <= near or homes == {facts.device_numa}:
        return
    said = f"runs on CPUs {facts.cpus}, and its device {facts.device_address} is next to "
    yield _of_rank("remote", facts, f"{said}{facts.device_cpus}", remedies.of_remote(facts))


def _far_memory(facts: Facts) -> Iterator[Verdict]:
    """A policy, or a cpuset, that leaves out every NUMA node of the rank's CPUs."""
    near = _cpus(facts.memory_near)
    mode, _, nodes = facts.memory.partition(" ")
    for what, text in ((f"policy {mode}", nodes), ("cpuset", facts.memory_allowed)):
        if near and text and not near & _cpus(text):
            said = f"runs beside NUMA node {facts.memory_near}, and its memory's {what} gives it "
            remedy = remedies.of_far_memory(facts, what == "cpuset")
            yield _of_rank("far-memory", facts, f"{said}that of {text}", remedy)
            return


def _too_many_threads(facts: Facts) -> Iterator[Verdict]:
    """More threads than hardware threads: they wait for each other."""
    cpus = len(_cpus(facts.cpus))
    if cpus and facts.omp_threads > cpus:
        there = f"CPU{'s' * (cpus > 1)} {facts.cpus}"
        said = f"computes with {facts.omp_threads} threads on {there}"
        yield _of_rank("threads", facts, said, remedies.of_threads(facts))


def _drifted(facts: Facts) -> Iterator[Verdict]:
    """Threads or children whose mask is not the one that the process started with."""
    lost = [
        f"{what} {cpus or 'nothing'}"
        for what, cpus in (
            ("the main thread on", facts.cpus),
            *(("a thread on", mask) for mask in facts.threads[1:]),
            ("a DataLoader worker on", facts.loader_cpus),
        )
        if cpus != facts.cpus_at_start
    ]
    if lost:
        said = f"started on CPUs {facts.cpus_at_start} and has {', '.join(dict.fromkeys(lost))}"
        yield _of_rank("drift", facts, said, remedies.of_drift(facts))
