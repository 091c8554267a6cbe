"""Copies by device and NUMA node: one device after the other, from the memory of each node.

It shows which node each device hangs on, whatever the firmware says of that, and what memory of
another node costs. A rank measures its own device, while the other ranks wait.
"""

from collections.abc import Iterator

import torch

from spawnlaunch import values
from spawnlaunch.bench import effort, sample, take
from spawnlaunch.bench.workloads import timing
from spawnlaunch.bench.workloads.device import copied
from spawnlaunch.binding import apply, report
from spawnlaunch.node import hardware

Rates = dict[str, tuple[float, float]]  # by NUMA node, GB/s to the device and from it


def measure(me: take.Participant) -> dict[str, Rates]:
    """By device, on rank 0; nothing where ranks have no devices. Raises FailedError on all."""
    if me.agreed.device is None:
        return {}
    device = torch.device("cuda", me.agreed.device)
    found: dict[str, Rates] = {}
    for turn in range(me.here.size):
        mine = _of_rank(me, device) if turn == me.here.view.rank else None
        everyone = me.group.gather(mine)
        refusal = ""
        for each in everyone:
            if each is not None:
                found[each[0]], refusal = each[1], each[2]
        if refusal := me.group.tell(refusal):
            raise sample.FailedError(refusal)
    return found


def _of_rank(me: take.Participant, device: torch.device) -> tuple[str, Rates, str]:
    """This rank's device, its rates, and what went wrong."""
    node, view = me.here.node, me.here.view
    own = next(iter(me.agreed.parts.values())).binding
    name = f"{view.host}: {report.device_name(node, own.device) or f'rank {view.rank}'}"
    rates: Rates = {}
    for binding in bindings(node, own):
        rank = timing.Rank(0, 1, view.local_rank, 1, binding.threads, device, me.options.seconds,
                           effort.Watch(binding.cpus, view.allowed), 0)  # fmt: skip
        taken = sample.of_workload(binding, lambda _, rank=rank: _rates(rank), lambda: False)  # type: ignore[misc]
        if taken.error:
            return name, rates, f"copies of {name}: {taken.error}"
        (home,) = binding.memory_nodes
        rates[str(home)] = (taken.values["to"], taken.values["from"])
    return name, rates, ""


def bindings(node: hardware.Node, own: apply.Binding) -> Iterator[apply.Binding]:
    """A binding to each NUMA node that has CPUs and memory for us."""
    for each in node.numa:
        cpus = each.cpus & node.cpus_allowed
        if cpus and each.id in node.memory_nodes:
            yield own._replace(
                cpus=cpus, memory_nodes=frozenset({each.id}), mem_bind=values.BIND_MEM
            )


def _rates(rank: timing.Rank) -> dict[str, float]:
    is_cuda = rank.device.type == "cuda"
    if is_cuda:
        torch.cuda.set_device(rank.device)
    to, back = copied(rank, pinned=is_cuda)
    return {"to": to, "from": back}
