"""Workloads of the device: copies to and from it, and all-reduce among the ranks' devices."""

import torch
import torch.distributed as dist

from spawnlaunch.bench.workloads.timing import Rank, steps_per_second, steps_together_per_second

COPY_BYTES = 64 * 2**20
MESSAGES = {"4 KiB": 2**12, "256 KiB": 2**18, "4 MiB": 2**22}  # of all-reduce
MESSAGES_ON_DEVICES = {**MESSAGES, "64 MiB": 2**26}


def copies(rank: Rank) -> dict[str, float]:
    """GB/s between host and device, all ranks at once, for each direction and kind of memory.

    Pinned memory is what the device can reach by itself; pageable memory goes through a pinned
    buffer of the driver, which the CPU fills, so there the binding counts twice.
    """
    on_device = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=rank.device)
    rates = {}
    for kind in ("pinned", "pageable"):
        on_host = torch.zeros(COPY_BYTES, dtype=torch.uint8, pin_memory=kind == "pinned")
        for name, to, of in (("to", on_device, on_host), ("from", on_host, on_device)):
            rate = steps_per_second(rank, lambda to=to, of=of: to.copy_(of, non_blocking=True))  # type: ignore[misc]
            rates[f"{name} device, {kind}"] = rate * COPY_BYTES / 1e9
    return rates


def allreduce(rank: Rank) -> dict[str, float]:
    """GB/s of bus bandwidth by the size of the message; the time is shared out among the sizes.

    Over NCCL or RCCL where each rank has a device, else gloo. Bus bandwidth is that of the tests of
    NCCL (nccl-tests, doc/PERFORMANCE.md): 2 (n - 1) / n times the bytes by the time, which can be
    compared with the links whatever the number of ranks n.
    """
    sizes = MESSAGES if rank.device.type == "cpu" else MESSAGES_ON_DEVICES
    part = rank._replace(seconds=rank.seconds / len(sizes))
    rates = {}
    for name, size in sizes.items():
        message = torch.zeros(size // 4, device=rank.device)
        rate = steps_together_per_second(part, lambda message=message: dist.all_reduce(message))  # type: ignore[misc]
        rates[name] = rate * size * 2 * (rank.size - 1) / rank.size / 1e9
    return rates
