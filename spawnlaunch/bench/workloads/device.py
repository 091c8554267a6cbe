"""Workloads of the device: copies, starts of kernels, and all-reduce among the ranks' devices."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist

from spawnlaunch.bench.workloads import timing

COPY_BYTES = 64 * 2**20
LAUNCHES = 100  # in a step, so that waiting for the device costs little
MESSAGES = {"4 B": 4, "4 KiB": 2**12, "256 KiB": 2**18, "4 MiB": 2**22}
LARGE = {"64 MiB": 2**26, "1 GiB": 2**30}  # between devices alone
TIMES_MEMORY = 8  # of a device, in its largest message


def copies(rank: timing.Rank) -> dict[str, float]:
    """GB/s between host and device, all ranks at once, for each direction and kind of memory.

    Pinned memory is what the device can reach by itself; pageable memory goes through a pinned
    buffer of the driver, which the CPU fills, so there the binding counts twice.
    """
    rates: dict[str, float] = {}
    for kind in ("pinned", "pageable"):
        to, back = copied(rank, pinned=kind == "pinned")
        rates |= {f"to device, {kind}": to, f"from device, {kind}": back}
    return {**rates, "both ways, pinned": copied_both_ways(rank)}


def copied(rank: timing.Rank, *, pinned: bool) -> tuple[float, float]:
    """GB/s to the device and from it; the memory of the host is made here, under this binding."""
    on_device, on_host = _buffers(rank, pinned=pinned)
    to, back = (
        timing.steps_per_second(rank, lambda to=to, of=of: to.copy_(of, non_blocking=True))  # type: ignore[misc]
        for to, of in ((on_device, on_host), (on_host, on_device))
    )
    return to * COPY_BYTES / 1e9, back * COPY_BYTES / 1e9


def _buffers(rank: timing.Rank, *, pinned: bool) -> tuple[torch.Tensor, torch.Tensor]:
    on_device = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=rank.device)
    return on_device, torch.zeros(COPY_BYTES, dtype=torch.uint8, pin_memory=pinned)


def copied_both_ways(rank: timing.Rank) -> float:
    """GB/s of both directions together, at once: each has a stream and buffers of its own."""
    is_cuda = rank.device.type == "cuda"
    (there, to), (back, of) = (_buffers(rank, pinned=is_cuda) for _ in range(2))
    streams = [torch.cuda.Stream(rank.device) if is_cuda else None for _ in range(2)]  # type: ignore[no-untyped-call]
    ways = [torch.cuda.stream(each) if each else nullcontext() for each in streams]

    def step() -> None:
        with ways[0]:
            there.copy_(to, non_blocking=True)
        with ways[1]:
            of.copy_(back, non_blocking=True)

    return timing.steps_per_second(rank, step) * 2 * COPY_BYTES / 1e9


def allreduce(rank: timing.Rank) -> dict[str, float]:
    """GB/s of bus bandwidth by the size of the message; the time is shared out among the sizes.

    Over NCCL or RCCL where each rank has a device, else gloo. Bus bandwidth is that of the tests of
    NCCL (nccl-tests, doc/PERFORMANCE.md): 2 (n - 1) / n times the bytes by the time, which can be
    compared with the links whatever the number of ranks n.
    """
    return _by_size(rank, 2.0, lambda message, _part: partial(dist.all_reduce, message))


def allgather(rank: timing.Rank) -> dict[str, float]:
    """GB/s of bus bandwidth of all-gather, by the size of the result, times (n - 1) / n."""
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # its newer name
    return _by_size(rank, 1.0, lambda message, part: partial(gather, message, part))


def reducescatter(rank: timing.Rank) -> dict[str, float]:
    """GB/s of bus bandwidth of reduce-scatter, by the size of the input, times (n - 1) / n."""
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    return _by_size(rank, 1.0, lambda message, part: partial(scatter, part, message))


Collective = Callable[[torch.Tensor, torch.Tensor], Callable[[], object]]


def _by_size(rank: timing.Rank, times: float, collective: Collective) -> dict[str, float]:
    """Measure bus bandwidth by the size of the message, which has a part for each rank."""
    known = sizes(None if rank.device.type == "cpu" else memory_bytes(rank.device))
    part = rank._replace(seconds=rank.seconds / len(known))
    rates: dict[str, float] = {}
    for name, size in known.items():
        share = max(1, size // 4 // rank.size)
        message = torch.zeros(size // 4 if times == 2 else share * rank.size, device=rank.device)
        step = collective(message, torch.zeros(share, device=rank.device))
        rate = timing.steps_together_per_second(part, step)
        moved = message.numel() * 4 * times * (rank.size - 1) / rank.size
        rates[name] = rate * moved / 1e9
    return rates


def sizes(device_bytes: int | None) -> dict[str, int]:
    """The sizes of messages for a device of so much memory; None: between CPUs."""
    if device_bytes is None:
        return MESSAGES
    fitting = {name: n for name, n in LARGE.items() if n * TIMES_MEMORY <= device_bytes}
    return {**MESSAGES, **fitting}


def memory_bytes(device: torch.device) -> int:
    """The memory of a device in bytes."""
    return int(torch.cuda.get_device_properties(device).total_memory)


def launches(rank: timing.Rank) -> dict[str, float]:
    """Kernels that this rank starts per second: each adds 1 to one number.

    The CPU limits it, so it shows a rank far from its device, or one that is held up.
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
