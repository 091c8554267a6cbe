"""The arms: ways to bind the ranks of a node that are measured against each other. Pure.

unpinned   no binding: what a launcher without one leaves
control    the same again: its difference from `unpinned` is noise
far        spread as `auto`, with each rank on the CPUs of another, away from its own device:
           what it loses against `auto` is due to locality, and not to spreading
packed     all ranks on one domain, as under a bad default: the smallest of NUMA node, L3 group
           and core that is the first of several
auto, ...  the policies of --bind, by name
as-many    `auto` with as many threads as `unpinned`, where these are others: its difference
           from `unpinned` is due to the binding, and from `auto` to the threads
nic-near, nic-far   `auto`, with NCCL on the network adapter next to the rank's device, or on the
           farthest one
others     flags of the launcher (own_arms)
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from spawnlaunch.base import cpuset
from spawnlaunch.binding import apply, plan
from spawnlaunch.cli import values
from spawnlaunch.node import hardware

UNPINNED, CONTROL, FAR, PACKED, AUTO = "unpinned", "control", "far", "packed", values.AUTO
AS_MANY, NIC_NEAR, NIC_FAR = "as-many", "nic-near", "nic-far"
POLICIES = {
    UNPINNED: values.NONE,
    CONTROL: values.NONE,
    **{name: name for name in values.NAMES if name != values.NONE},
}
BINDS = tuple(name for name in POLICIES if name in values.NAMES)
NAMES = (UNPINNED, CONTROL, FAR, PACKED, *BINDS, AS_MANY, NIC_NEAR, NIC_FAR)
CONTROLS = (CONTROL, FAR, PACKED, AS_MANY)  # measured for comparison, and never advised
DEFAULT = (AUTO, UNPINNED)  # unpinned is what torchrun does
TOGETHER = (FAR, PACKED)  # planned for all ranks of a node by one that knows them all
LOADER_WORKERS = 8  # at most, unless an arm says how many


class ArmRequest(NamedTuple):
    """An arm as the command line requests it."""

    name: str
    flags: tuple[str, ...] = ()  # of the launcher
    environ: tuple[tuple[str, str], ...] = ()  # variables that every rank is given
    loader_workers: int | None = None  # of each rank; None: as many as threads, at most 8
    local_size: int | None = None  # ranks of a node that take part; None: all of them
    launcher: str = ""  # that starts the ranks of the command; "": the bench does

    def typed(self, bindings: Sequence[apply.Binding]) -> str:
        """The launcher's flags for this arm; for `far` and `packed`, the CPUs of each rank."""
        if self.name in (FAR, PACKED):
            cpus = ":".join(cpuset.format(binding.cpus) for binding in bindings)
            return f"--bind {cpus}"
        if self.launcher:
            return self.launcher
        return shlex.join(self.flags)

    @property
    def beside(self) -> str:
        """The settings of an arm that are not flags of the launcher; "" for none."""
        workers = self.loader_workers
        words = [f"{name}={value}" for name, value in self.environ]
        words += [] if workers is None else [f"num_workers={workers}"]
        words += ["NCCL_IB_HCA"] if self.name in (NIC_NEAR, NIC_FAR) else []
        return " ".join(words)


def request_of(name: str) -> ArmRequest:
    """The request for one of NAMES."""
    policy = POLICIES.get(name, AUTO)
    return ArmRequest(name, ("--bind", policy))


def of_size(local_size: int) -> ArmRequest:
    """An arm with this number of ranks on each node, bound as by default."""
    return ArmRequest(str(local_size), ("--bind", AUTO), local_size=local_size)


def of_launcher(name: str, typed: str) -> ArmRequest:
    """An arm for a launcher's command line, which binds the ranks of the command itself."""
    return ArmRequest(name, ("--bind", values.NONE), launcher=typed)


class Planned(NamedTuple):
    """The bindings of an arm on one node, or the reason why there are none."""

    bindings: tuple[apply.Binding, ...]  # of the local ranks that are planned, in their order
    missing: str = ""  # why there are none


def far(node: hardware.Node, best: Sequence[apply.Binding]) -> Planned:
    """The bindings of `auto`, shifted so that the most ranks are away from their devices."""
    if all(binding.device is None for binding in best):
        return Planned((), "no rank has a device here that it could be far from")
    moved = [_moved(node, best, by) for by in range(1, len(best))]
    score = max(map(_remote, moved), default=0)
    if score <= _remote(best):
        return Planned((), "no binding is further from the devices than those of auto")
    return Planned(max(moved, key=lambda bindings: (_remote(bindings), _way(node, bindings))))


def _moved(
    node: hardware.Node, best: Sequence[apply.Binding], by: int
) -> tuple[apply.Binding, ...]:
    """Bindings that give rank r the CPUs of rank r + by, and its own device."""
    bindings = []
    for r, own in enumerate(best):
        there = best[(r + by) % len(best)]
        how = _locality(node, own, there.cpus)
        bindings.append(there._replace(local_rank=r, device=own.device, locality=how))
    return tuple(bindings)


def _locality(node: hardware.Node, own: apply.Binding, cpus: cpuset.CpuSet) -> str:
    """The locality of these CPUs to the rank's device."""
    return plan.locality(node, own.device, own.locality != plan.UNTOLD, cpus)


def _remote(bindings: Iterable[apply.Binding]) -> int:
    return sum(1 for binding in bindings if binding.locality == plan.FAR)


def _way(node: hardware.Node, bindings: Sequence[apply.Binding]) -> int:
    """The sum of the NUMA distances from the ranks to their devices, where they are known."""
    ways = {(each.id, other): way for each in node.numa for other, way in each.distances}
    total = 0
    for binding in bindings:
        home = None if binding.device is None else node.devices[binding.device].numa
        here = min((each.id for each in node.numa if each.cpus & binding.cpus), default=None)
        total += ways.get((here, home), 0) if here is not None and home is not None else 0
    return total


def packed(node: hardware.Node, best: Sequence[apply.Binding], allowed: cpuset.CpuSet) -> Planned:
    """The bindings of all ranks to one domain, with as many threads each as `auto` gives them."""
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


def _first_domain(node: hardware.Node, allowed: cpuset.CpuSet) -> cpuset.CpuSet | None:
    """The first of several NUMA nodes, else of L3 groups, else of cores; None for one core."""
    for level in ([each.cpus for each in node.numa], node.l3, node.cores):
        groups = [group & allowed for group in level if group & allowed]
        if len(groups) > 1:
            return min(groups, key=min)
    return None


Plan = Callable[[ArmRequest], tuple[apply.Binding, ...]]


def on_node(
    node: hardware.Node, allowed: cpuset.CpuSet, asked: Sequence[ArmRequest], planned: Plan
) -> dict[str, Planned]:
    """The bindings of all ranks of a node under each arm; `planned` goes by the flags of one."""
    return {arm.name: _on_node(node, allowed, arm, planned) for arm in asked}


def _on_node(
    node: hardware.Node, allowed: cpuset.CpuSet, arm: ArmRequest, planned: Plan
) -> Planned:
    best = planned(arm)
    if arm.name == FAR:
        return far(node, best)
    if arm.name == PACKED:
        return packed(node, best, allowed)
    if arm.name == AS_MANY:
        return Planned(as_many(best, planned(request_of(UNPINNED))))
    if arm.name in (NIC_NEAR, NIC_FAR) and not any(nic_of(node, arm.name, each) for each in best):
        return Planned((), "no InfiniBand adapter is known beside a device")
    return Planned(best)


def as_many(
    best: Sequence[apply.Binding], unpinned: Sequence[apply.Binding]
) -> tuple[apply.Binding, ...]:
    """The bindings of `auto` with the threads of `unpinned`."""
    pairs = zip(best, unpinned, strict=True)
    return tuple(own._replace(threads=other.threads) for own, other in pairs)


def nic_of(node: hardware.Node, name: str, binding: apply.Binding) -> str:
    """The adapter of `nic-near` or `nic-far` for a rank, as NCCL_IB_HCA names it; "" for none.

    Names such as mlx5_0 are those of the kernel's InfiniBand devices; NCCL cannot choose an adapter
    with another kind of driver.
    """
    if binding.device is None or name not in (NIC_NEAR, NIC_FAR):
        return ""
    home = node.devices[binding.device]
    known = [nic for nic in node.nics if "_" in nic.name and ":" not in nic.name]
    by_way = sorted(known, key=lambda nic: _way_to(node, home, nic))
    return (by_way[0] if name == NIC_NEAR else by_way[-1]).name if by_way else ""


def nearest_nic(node: hardware.Node, number: int) -> str:
    """The network adapter next to a device; "" where none is known."""
    home = node.devices[number]
    return min(node.nics, key=lambda nic: _way_to(node, home, nic)).name if node.nics else ""


def _way_to(node: hardware.Node, device: hardware.Device, nic: hardware.Nic) -> tuple[bool, int]:
    """Whether device and adapter are next to other CPUs, and the distance of their NUMA nodes."""
    apart = device.local_cpus is None or device.local_cpus != nic.local_cpus
    ways = {(each.id, other): way for each in node.numa for other, way in each.distances}
    if device.numa is None or nic.numa is None:
        return apart, 1000
    return apart, ways.get((device.numa, nic.numa), 10 if device.numa == nic.numa else 1000)


class Effect(NamedTuple):
    """The effect of an arm on a rank: of arms with equal effects on all ranks one is measured."""

    cpus: str
    memory: str  # the policy and its nodes; empty where there is no choice
    threads: int
    loader_workers: int
    local_size: int | None
    environ: tuple[tuple[str, str], ...]
    launcher: str = ""


def effect(
    node: hardware.Node, binding: apply.Binding, allowed: cpuset.CpuSet, arm: ArmRequest
) -> Effect:
    """The effect of a binding; no binding is the same as one to all allowed CPUs."""
    nodes = binding.memory_nodes
    choice = len(node.memory_nodes) > 1 and binding.mem_bind != values.NO_MEM
    nic = nic_of(node, arm.name, binding)
    return Effect(
        cpuset.format(binding.cpus or allowed),
        f"{binding.mem_bind} {cpuset.format(nodes)}" if choice and nodes else "",
        binding.threads,
        arm.loader_workers or min(binding.threads, LOADER_WORKERS),
        arm.local_size,
        (*arm.environ, *((("NCCL_IB_HCA", nic),) if nic else ())),
        arm.launcher,
    )


def left_out(effects: Mapping[str, Sequence[Effect | str | None]]) -> dict[str, str]:
    """The arms that are not measured, and why.

    `effects` has for each arm, in the order of the arms, its effect on each rank of the job, or why
    there is no such arm on the rank's node. Of arms with equal effects, the first arm of all is
    kept, or else the launcher's default.
    """
    out: dict[str, str] = {}
    kept: dict[str, Sequence[Effect | str | None]] = {}
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
