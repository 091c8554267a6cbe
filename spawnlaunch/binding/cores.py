"""The cores that ranks may use, in an order that keeps neighbours together.

Cores are ordered by NUMA node, L3 group and CPU, so that a run of them is a run of neighbours, and
a cut between two runs is best where the NUMA node or the L3 group ends.
"""

from __future__ import annotations

from spawnlaunch import cpuset
from spawnlaunch.cpuset import EMPTY, CpuSet
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from spawnlaunch.node import Node
    from spawnlaunch.values import Policy

APART = -1  # the NUMA node or L3 group of a core for which none is known


class Core(NamedTuple):
    """A physical core, as far as ranks may use it."""

    cpus: CpuSet  # its hardware threads that may be used, never none
    numa: int  # NUMA node, or APART
    l3: int  # position in Node.l3, or APART


def usable_cores(node: Node, policy: Policy, by_l3: bool, warnings: list[str]) -> tuple[Core, ...]:
    """What the allowed CPUs leave after reserved CPUs, and with SMT off after second threads.

    With `by_l3` the cores know their L3 groups.
    """
    usable = node.cpus_allowed - _reserved(node, policy, warnings)
    numa = {cpu: each.id for each in node.numa for cpu in each.cpus}
    l3 = {cpu: i for i, group in enumerate(node.l3) for cpu in group} if by_l3 else {}
    found = []
    for siblings in (*node.cores, *({cpu} for cpu in usable.difference(*node.cores))):
        threads = usable.intersection(siblings)
        if threads:
            first = min(threads)
            kept = threads if policy.smt else frozenset({first})
            place = (numa.get(first, APART), l3.get(first, APART))
            found.append((*place, first, kept))
    # No two have the same first CPU, so no sets are compared.
    return tuple(Core(cpus, home, group) for home, group, _, cpus in sorted(found))


def _reserved(node: Node, policy: Policy, warnings: list[str]) -> CpuSet:
    reserved = policy.reserve
    if policy.reserve_first_per_l3:
        if not node.l3:
            warnings.append("L3 groups are not known here: no core is reserved for them")
        reserved = reserved.union(*(_first_core(node, group) for group in node.l3))
    if node.cpus_allowed and node.cpus_allowed <= reserved:
        warnings.append(
            f"the reserved CPUs {cpuset.format(reserved & node.cpus_allowed)} are all that is "
            "allowed: none is kept free"
        )
        return EMPTY
    return reserved


def _first_core(node: Node, group: CpuSet) -> CpuSet:
    """The first core of an L3 group by the hardware, whether or not it is allowed.

    So where a site keeps that core for the system already, no second one is lost. A group of one
    core keeps it.
    """
    cores = [core for core in node.cores if core & group]
    return cores[0] if len(cores) > 1 else EMPTY


def count_cores(node: Node, cpus: Iterable[int]) -> int:
    """How many physical cores have a hardware thread among these CPUs."""
    return sum(1 for core in node.cores if not core.isdisjoint(cpus))
