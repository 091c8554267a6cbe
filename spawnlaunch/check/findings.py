"""What is wrong with the ranks' bindings, and its remedy: a pure function of all the facts."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from spawnlaunch import cpuset
from spawnlaunch.check import remedies
from spawnlaunch.check.facts import Facts


class Finding(NamedTuple):
    """Something that is wrong."""

    rule: str  # "shared-cores", "remote", "one-core" or "drift"
    ranks: tuple[int, ...]
    message: str
    remedy: str


def findings(everyone: Sequence[Facts]) -> list[Finding]:
    """All that is wrong, node by node."""
    by_host = sorted(everyone, key=lambda facts: (facts.host, facts.local_rank))
    found: list[Finding] = []
    for host, ranks in groupby(by_host, key=lambda facts: facts.host):
        on_host = list(ranks)
        found += _shared(host, on_host)
        found += _narrow(host, on_host)
    for facts in everyone:
        found += _remote(facts)
        found += _drifted(facts)
    return found


def _cpus(text: str) -> cpuset.CpuSet:
    return cpuset.parse(text) if text else cpuset.EMPTY


def _shared(host: str, ranks: Sequence[Facts]) -> Iterator[Finding]:
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
            yield Finding(
                "shared-cores",
                tuple(sorted(members)),
                f"on {host} ranks {cpuset.format(members)} share the CPUs {cpuset.format(cpus)}",
                remedies.of_shared(here, ranks),
            )


def _narrow(host: str, ranks: Sequence[Facts]) -> Iterator[Finding]:
    """Ranks on one core of a machine that has at least two for each of them."""
    narrow = [
        facts for facts in ranks if facts.cores == 1 and facts.cores_of_node >= 2 * len(ranks)
    ]
    if narrow:
        squeezed = [facts.rank for facts in narrow]
        yield Finding(
            "one-core",
            tuple(squeezed),
            f"on {host} ranks {cpuset.format(squeezed)} have one core each, of "
            f"{ranks[0].cores_of_node} for {len(ranks)} ranks",
            remedies.of_narrow(narrow, ranks),
        )


def _remote(facts: Facts) -> Iterator[Finding]:
    if facts.device_cpus is None or not facts.cpus:
        return
    here, near = _cpus(facts.cpus), _cpus(facts.device_cpus)
    homes = _cpus(facts.numa)
    if here <= near or homes == {facts.device_numa}:
        return
    yield Finding(
        "remote",
        (facts.rank,),
        f"rank {facts.rank} on {facts.host} runs on CPUs {facts.cpus}, and its device "
        f"{facts.device_address} is next to {facts.device_cpus}",
        remedies.of_remote(facts),
    )


def _drifted(facts: Facts) -> Iterator[Finding]:
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
        yield Finding(
            "drift",
            (facts.rank,),
            f"rank {facts.rank} on {facts.host} started on CPUs {facts.cpus_at_start} and has "
            f"{', '.join(dict.fromkeys(lost))}",
            remedies.of_drift(facts),
        )
