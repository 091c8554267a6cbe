"""The arms: ways to seat the ranks of a node that are measured against each other. Pure.

unpinned   no binding: what a launcher without one leaves
control    the same again: whatever it differs by from `unpinned` is noise
far        spread as `auto`, with each rank in the seat of another, away from its own device:
           what it loses against `auto` is due to locality, and not to spreading
packed     all ranks on one domain, as under a bad default: the smallest of NUMA node, L3 group
           and core that is the first of several
auto, ...  the policies of --bind, by name
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from spawnlaunch import cpuset, values
from spawnlaunch.binding import plan
from spawnlaunch.binding.plan import Binding
from spawnlaunch.binding.seats import Seat
from spawnlaunch.cpuset import CpuSet
from spawnlaunch.node import Node

UNPINNED, CONTROL, FAR, PACKED, AUTO = "unpinned", "control", "far", "packed", values.AUTO
POLICIES = {
    UNPINNED: values.NONE,
    CONTROL: values.NONE,
    **{name: name for name in values.NAMES if name != values.NONE},
}
NAMES = (UNPINNED, CONTROL, FAR, PACKED, *(name for name in POLICIES if name in values.NAMES))
DEFAULT = (UNPINNED, FAR, PACKED, AUTO)


class Seats(NamedTuple):
    """An arm on one node, or why there is no such arm there."""

    bindings: tuple[Binding, ...]  # of the local ranks that are planned, in their order
    missing: str = ""  # why there are none


def flag(name: str, bindings: Sequence[Binding]) -> str:
    """What to type for an arm; for those that are no policy, the CPUs of each rank."""
    if name in POLICIES:
        return f"--bind {POLICIES[name]}"
    return f"--bind {':'.join(cpuset.format(binding.cpus) for binding in bindings)}"


def far(node: Node, best: Sequence[Binding]) -> Seats:
    """The seats of `auto`, moved on by as many ranks as take the most ranks from their devices."""
    if all(binding.device is None for binding in best):
        return Seats((), "no rank has a device here that it could be far from")
    moved = [_moved(node, best, by) for by in range(1, len(best))]
    score = max(map(_remote, moved), default=0)
    if score <= _remote(best):
        return Seats((), "no seat is further from the devices than those of auto")
    return Seats(max(moved, key=lambda seats: (_remote(seats), _way(node, seats))))


def _moved(node: Node, best: Sequence[Binding], by: int) -> tuple[Binding, ...]:
    """Rank r in the seat of rank r + by, with its own device."""
    seats = []
    for r, own in enumerate(best):
        there = best[(r + by) % len(best)]
        how = _locality(node, own, there.cpus)
        seats.append(there._replace(local_rank=r, device=own.device, locality=how))
    return tuple(seats)


def _locality(node: Node, own: Binding, cpus: CpuSet) -> str:
    """Of these CPUs to the rank's device."""
    seat = Seat(own.local_rank, own.device, own.locality != plan.UNKNOWN, None)
    return plan.locality(node, seat, cpus)


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


def packed(node: Node, best: Sequence[Binding], allowed: CpuSet) -> Seats:
    """All ranks in one domain, with as many threads each as `auto` gives them."""
    if not allowed:
        return Seats((), "this system has no CPU masks")
    domain = _first_domain(node, allowed)
    if len(best) < 2 or domain is None:
        return Seats((), "there is one rank" if domain else "there is one core to sit on")
    memory = plan.memory_beside(node, domain)
    return Seats(
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
) -> dict[str, Seats]:
    """The seats of all ranks of a node under each arm; `planned` makes the plan of a policy."""
    made: dict[str, Seats] = {}
    for name in names:
        if name == FAR:
            made[name] = far(node, planned(AUTO))
        elif name == PACKED:
            made[name] = packed(node, planned(AUTO), allowed)
        else:
            made[name] = Seats(planned(POLICIES[name]))
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
            out[name] = f"it makes no difference here: every rank sits as under {twin}"
        else:
            kept[name] = ranks
    return out
