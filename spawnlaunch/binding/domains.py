"""Policies that bind a rank to a whole domain, which several ranks may share.

The names and meanings are torchrun's. Where torchrun would use NUMA node 0 for an unknown one, or
fail on a domain without allowed CPUs, the rank gets the domain of its own share.
"""

from __future__ import annotations

from spawnlaunch.base import cpuset
from spawnlaunch.cli import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.binding import claims, cores
    from spawnlaunch.node import hardware


def domains_around(
    policy: str,
    node: hardware.Node,
    ranks: Sequence[claims.Claimant],
    shares: Sequence[cores.Share],
    usable: cpuset.CpuSet,
    warnings: list[str],
) -> list[cores.Share]:
    """Widen the exclusive shares of ranks to the usable CPUs of whole domains."""
    own = [share.cpus for share in shares]
    if policy == values.CORE_COMPLEX:
        if not node.l3:
            warnings.append(
                f"L3 groups are not known here: {values.CORE_COMPLEX} binds to exclusive shares"
            )
        domains = _core_complexes(node, own)
    else:
        domains = _numa_nodes(node, ranks, own)
        if policy == values.SOCKET:
            if not node.packages:
                warnings.append(f"packages are not known here: {values.SOCKET} binds to NUMA nodes")
            domains = [_touched(node.packages, domain) or domain for domain in domains]
    return [
        share._replace(cpus=domain & usable or share.cpus)
        for share, domain in zip(shares, domains, strict=True)
    ]


def _numa_nodes(
    node: hardware.Node, ranks: Sequence[claims.Claimant], shares: Sequence[cpuset.CpuSet]
) -> list[cpuset.CpuSet]:
    """The CPUs of each device's NUMA node; where that is unknown, of the share's NUMA nodes."""
    device_of = {rank.claim: rank.device for rank in ranks}
    found = []
    for claim, share in enumerate(shares):
        device = device_of.get(claim)
        home = None if device is None else node.devices[device].numa
        at_home = cpuset.EMPTY.union(*(each.cpus for each in node.numa if each.id == home))
        found.append(at_home or _touched([each.cpus for each in node.numa], share) or share)
    return found


def _touched(groups: Sequence[cpuset.CpuSet], cpus: cpuset.CpuSet) -> cpuset.CpuSet:
    return cpuset.EMPTY.union(*(group for group in groups if group & cpus))


def _core_complexes(node: hardware.Node, shares: Sequence[cpuset.CpuSet]) -> list[cpuset.CpuSet]:
    """For each rank, the L3 group with most of its share, if possible another one for each rank."""
    taken: set[cpuset.CpuSet] = set()
    chosen = []
    for share in shares:
        near = [group for group in node.l3 if group & share]
        fresh = [group for group in near if group not in taken]
        best = max(fresh or near, key=lambda group: len(group & share), default=share)
        taken.add(best)
        chosen.append(best)
    return chosen
