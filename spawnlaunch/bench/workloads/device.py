"""Workloads of the device: copies, starts of kernels, and all-reduce among the ranks' devices."""

from functools import partial

import torch
import torch.distributed as dist

from spawnlaunch.bench.workloads import timing

COPY_BYTES = 64 * 2**20
LAUNCHES = 100  # in a step, so that waiting for the device costs little
MESSAGES = {"4 KiB": 2**12, "256 KiB": 2**18, "4 MiB": 2**22}  # of all-reduce
MESSAGES_ON_DEVICES = {**MESSAGES, "64 MiB": 2**26}


def copies(rank: timing.Rank) -> dict[str, float]:
    """GB/s between host and device, all ranks at once, for each direction and kind of memory.

    Pinned memory is what the device can reach by itself; pageable memory goes through a pinned
    buffer of the driver, which the CPU fills, so there the binding counts twice.
    """
    rates: dict[str, float] = {}
    for kind in ("pinned", "pageable"):
        to, back = copied(rank, pinned=kind == "pinned")
        rates |= {f"to device, {kind}": to, f"from device, {kind}": back}
    return rates


def copied(rank: timing.Rank, *, pinned: bool) -> tuple[float, float]:
    """GB/s to the device and from it; the memory of the host is made here, under this binding."""
    on_device = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=rank.device)
    on_host = torch.zeros(COPY_BYTES, dtype=torch.uint8, pin_memory=pinned)
    to, back = (
        timing.steps_per_second(rank, lambda to=to, of=of: to.copy_(of, non_blocking=True))  # type: ignore[misc]
        for to, of in ((on_device, on_host), (on_host, on_device))
    )
    return to * COPY_BYTES / 1e9, back * COPY_BYTES / 1e9


def allreduce(rank: timing.Rank) -> dict[str, float]:
    """GB/s of bus bandwidth by the size of the message; the time is shared out among the sizes.

    Over NCCL or RCCL where each rank has a device, else gloo. Bus bandwidth is that of the tests of
    NCCL (nccl-tests, doc/PERFORMANCE.md): 2 (n - 1) / n times the bytes by the time, which can be
    compared with the links whatever the number of ranks n.
    """
    sizes = MESSAGES if rank.device.type == "cpu" else MESSAGES_ON_DEVICES
    part = rank._replace(seconds=rank.seconds / len(sizes))
    rates: dict[str, float] = {}
    for name, size in sizes.items():
        message = torch.zeros(size // 4, device=rank.device)
        reduce = partial(dist.all_reduce, message)
        rate = timing.steps_together_per_second(part, reduce)
        rates[name] = rate * size * 2 * (rank.size - 1) / rank.size / 1e9
    return rates


def launches(rank: timing.Rank) -> dict[str, float]:
    """Kernels that this rank starts per second: each adds 1 to one number.

    The CPU is what limits it, so it shows a rank far from its device, or one that is held up.
    """
    number = torch.zeros(1, device=rank.device)

    def step() -> None:
        for _ in range(LAUNCHES):
            number.add_(1)

    return {"": timing.steps_per_second(rank, step) * LAUNCHES}


def latency(rank: timing.Rank) -> dict[str, float]:
    """Microseconds of a copy of 4 bytes to the device and back, which the CPU waits for."""
    on_host = torch.zeros(1, pin_memory=rank.device.type == "cuda")
    on_device = torch.zeros(1, device=rank.device)

    def step() -> None:
        on_device.copy_(on_host)
        on_host.copy_(on_device)

    return {"": 1e6 / timing.steps_per_second(rank, step)}
