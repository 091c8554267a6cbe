"""The arms: ways to bind the ranks of a node that are measured against each other. Pure.

unpinned   no binding: what a launcher without one leaves
control    the same again: whatever it differs by from `unpinned` is noise
far        spread as `auto`, with each rank on the CPUs of another, away from its own device:
           what it loses against `auto` is due to locality, and not to spreading
packed     all ranks on one domain, as under a bad default: the smallest of NUMA node, L3 group
           and core that is the first of several
auto, ...  the policies of --bind, by name
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from spawnlaunch import cpuset, values
from spawnlaunch.binding import plan
from spawnlaunch.binding.apply import Binding
from spawnlaunch.cpuset import CpuSet
from spawnlaunch.node import Node

UNPINNED, CONTROL, FAR, PACKED, AUTO = "unpinned", "control", "far", "packed", values.AUTO
POLICIES = {
    UNPINNED: values.NONE,
    CONTROL: values.NONE,
    **{name: name for name in values.NAMES if name != values.NONE},
}
NAMES = (UNPINNED, CONTROL, FAR, PACKED, *(name for name in POLICIES if name in values.NAMES))
CONTROLS = (CONTROL, FAR, PACKED)  # measured for comparison, and never advised
DEFAULT = (UNPINNED, FAR, PACKED, AUTO)


class Planned(NamedTuple):
    """An arm on one node, or why there is no such arm there."""

    bindings: tuple[Binding, ...]  # of the local ranks that are planned, in their order
    missing: str = ""  # why there are none


def flag(name: str, bindings: Sequence[Binding]) -> str:
    """What to type for an arm; for those that are no policy, the CPUs of each rank."""
    if name in POLICIES:
        return f"--bind {POLICIES[name]}"
    return f"--bind {':'.join(cpuset.format(binding.cpus) for binding in bindings)}"


def far(node: Node, best: Sequence[Binding]) -> Planned:
    """The bindings of `auto`, moved on so far that the most ranks are away from their devices."""
    if all(binding.device is None for binding in best):
        return Planned((), "no rank has a device here that it could be far from")
    moved = [_moved(node, best, by) for by in range(1, len(best))]
    score = max(map(_remote, moved), default=0)
    if score <= _remote(best):
        return Planned((), "no binding is further from the devices than those of auto")
    return Planned(max(moved, key=lambda bindings: (_remote(bindings), _way(node, bindings))))


def _moved(node: Node, best: Sequence[Binding], by: int) -> tuple[Binding, ...]:
    """Rank r with the CPUs of rank r + by and its own device."""
    bindings = []
    for r, own in enumerate(best):
        there = best[(r + by) % len(best)]
        how = _locality(node, own, there.cpus)
        bindings.append(there._replace(local_rank=r, device=own.device, locality=how))
    return tuple(bindings)


def _locality(node: Node, own: Binding, cpus: CpuSet) -> str:
    """Of these CPUs to the rank's device."""
    return plan.locality(node, own.device, own.locality != plan.UNKNOWN, cpus)


def _remote(bindings: Iterable[Binding]) -> int:
    return sum(1 for binding in bindings if binding.locality == plan.REMOTE)


def _way(node: Node, bindings: Sequence[Binding]) -> int:
    """The sum of the NUMA distances from the ranks to their devices, where they are known."""
    ways = {(each.id, other): way for each in node.numa for other, way in each.distances}
    total = 0
    for binding in bindings:
        home = None if binding.device is None else node.devices[binding.device].numa
        here = min((each.id for each in node.numa if each.cpus & binding.cpus), default=None)
        total += ways.get((here, home), 0) if here is not None and home is not None else 0
    return total


def packed(node: Node, best: Sequence[Binding], allowed: CpuSet) -> Planned:
    """All ranks in one domain, with as many threads each as `auto` gives them."""
    if not allowed:
        return Planned((), "this system has no CPU masks")
    domain = _first_domain(node, allowed)
    if len(best) < 2 or domain is None:
        return Planned((), "there is one rank" if domain else "there is one core to share")
    memory = plan.memory_beside(node, domain)
    return Planned(
        tuple(
            own._replace(
                cpus=domain,
                memory_nodes=memory,
                locality=_locality(node, own, domain),
                note="shares cores",
            )
            for own in best
        )
    )


def _first_domain(node: Node, allowed: CpuSet) -> CpuSet | None:
    """The first NUMA node of several; else L3 group, else core; None: there is one core."""
    for level in ([each.cpus for each in node.numa], node.l3, node.cores):
        groups = [group & allowed for group in level if group & allowed]
        if len(groups) > 1:
            return min(groups, key=min)
    return None


def on_node(
    node: Node,
    allowed: CpuSet,
    names: Sequence[str],
    planned: Callable[[str], tuple[Binding, ...]],
) -> dict[str, Planned]:
    """The bindings of all ranks of a node under each arm; `planned` makes the plan of a policy."""
    made: dict[str, Planned] = {}
    for name in names:
        if name == FAR:
            made[name] = far(node, planned(AUTO))
        elif name == PACKED:
            made[name] = packed(node, planned(AUTO), allowed)
        else:
            made[name] = Planned(planned(POLICIES[name]))
    return made


class Effect(NamedTuple):
    """What an arm does to a rank: two arms with equal effects on all ranks are one."""

    cpus: str
    memory_nodes: str  # empty where there is no choice
    threads: int


def effect(node: Node, binding: Binding, allowed: CpuSet) -> Effect:
    """Not bound is the same as bound to all that is allowed."""
    choice = len(node.memory_nodes) > 1
    return Effect(
        cpuset.format(binding.cpus or allowed),
        cpuset.format(binding.memory_nodes) if choice else "",
        binding.threads,
    )


def left_out(effects: Mapping[str, Sequence[Effect | str]]) -> dict[str, str]:
    """The arms that are not measured, and why.

    `effects` has for each arm, in the order of the arms, what it does to each rank of the job, or
    why there is no such arm on the rank's node. Of arms that are one, the first arm of all is kept,
    or else the launcher's default.
    """
    out: dict[str, str] = {}
    kept: dict[str, Sequence[Effect | str]] = {}
    first = next(iter(effects))
    for name in sorted(effects, key=lambda name: (name != first, name != AUTO)):
        ranks = effects[name]
        why = next((each for each in ranks if isinstance(each, str)), None)
        twin = next((other for other, its in kept.items() if its == ranks), None)
        if why is not None:
            out[name] = why
        elif twin is not None and name != CONTROL:
            out[name] = f"it makes no difference here: every rank is bound as under {twin}"
        else:
            kept[name] = ranks
    return out
