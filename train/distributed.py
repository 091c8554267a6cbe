"""The place of this worker among all, its device, and the exchanges between them."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from .errors import ElsewhereError, RefusedError, shared_refusal

T = TypeVar("T")

LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True)
class World:
    """``rank`` of ``size`` workers; ``local_rank`` counts the ``local_size`` of this node."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def read_world(environ: Mapping[str, str]) -> World:
    """Read the launcher's variables of this worker; without RANK and WORLD_SIZE, a world of one.

    Raises RefusedError when they are incomplete or contradict each other.
    """
    if "RANK" not in environ and "WORLD_SIZE" not in environ:
        return World()
    try:
        rank, size, local = (int(environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        if not 0 <= rank < size:
            raise ValueError(f"RANK is {rank} and WORLD_SIZE is {size}")
        return World(rank, size, local, int(environ.get("LOCAL_WORLD_SIZE", size)))
    except (KeyError, ValueError) as error:
        raise RefusedError(
            f"RANK, WORLD_SIZE and LOCAL_RANK go together as numbers: {error}; start the workers "
            "with a launcher, or unset them all to train with one process"
        ) from error


def pick_device(wanted: str, world: World, count: int) -> torch.device:
    """The device of this worker, which sees ``count`` of them.

    A launcher either shows every worker all devices, and LOCAL_RANK counts them, or shows each
    worker its own one. Raises RefusedError when neither is so.
    """
    if wanted == "cpu" or (wanted == "auto" and not count):
        return torch.device("cpu")
    index = 0 if count == 1 else world.local_rank
    if index >= count:
        maker = "ROCm" if torch.version.hip else "CUDA"  # PyTorch for ROCm says cuda as well
        raise RefusedError(
            f"LOCAL_RANK is {world.local_rank} but {count} {maker} devices are visible; "
            "start as many workers per node as it has devices, or use --device cpu"
        )
    return torch.device("cuda", index)


def peak_bytes(device: torch.device) -> int:
    """The most memory this process had: of the device, or of the machine where it used none."""
    if device.type != "cpu":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): kilobytes, on macOS bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def join(world: World, device: torch.device) -> None:
    """Join the process group of all workers; a world of one has none.

    Raises RefusedError where NCCL does not connect them.
    """
    on_device = device.type != "cpu"
    if on_device:
        torch.cuda.set_device(device)
    if world.size == 1:
        return
    try:
        dist.init_process_group(
            "nccl" if on_device else "gloo", device_id=device if on_device else None
        )
    except dist.DistBackendError as error:  # of NCCL alone: all workers have joined
        why = str(error).strip().splitlines()[-1]
        raise RefusedError(
            f"NCCL does not connect rank {world.rank} with the others: {why}; give each rank a "
            "device of its own, or use --device cpu; export NCCL_DEBUG=INFO to hear more"
        ) from None


def leave_group() -> None:
    """Leave the process group. Without it, gloo's threads may abort the exiting process."""
    if dist.is_initialized():
        dist.destroy_process_group()


def sum_over_ranks(values: Tensor) -> Tensor:
    """Add ``values`` up over all ranks, in place."""
    if dist.is_initialized():
        dist.all_reduce(values)
    return values


def any_rank(value: bool, device: torch.device) -> bool:
    """Whether at least one rank passes true; every rank gets the same answer."""
    return bool(sum_over_ranks(torch.full((1,), float(value), device=device)).item())


def from_every_rank(value: T) -> list[T]:
    """Return the values of all ranks, in rank order, on every rank."""
    if not dist.is_initialized():
        return [value]
    box: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(box, value)
    return box


def run_on_all_ranks(work: Callable[[], T]) -> T:
    """Return the result of ``work``, or raise on all ranks what it raises on one.

    A RefusedError is raised on all. Of other errors, the first rank that has one raises it and
    prints its traceback; the others raise ElsewhereError.
    """
    error: Exception | None = None
    try:
        result = work()
    except Exception as raised:
        error = raised
    refusal = str(error) if isinstance(error, RefusedError) else ""
    answers = from_every_rank((refusal, error is not None))
    for rank, (text, _) in enumerate(answers):
        if text:
            raise shared_refusal(f"rank {rank}: {text}" if rank > 0 else text)
    failed = [rank for rank, (_, has_failed) in enumerate(answers) if has_failed]
    if error is not None and failed[0] == (dist.get_rank() if dist.is_initialized() else 0):
        raise error
    if failed:
        raise ElsewhereError
    return result


def refuse_if_any(wrong: str) -> None:
    """Raises RefusedError on every rank if one of them passes a text on what is wrong."""
    for text in filter(None, from_every_rank(wrong)):
        raise shared_refusal(text)


def agree(values: Mapping[str, Any], otherwise: str) -> None:
    """Raises RefusedError on every rank unless each has the same value for each name.

    The error names the difference, and what to do ``otherwise``.
    """
    first, *others = from_every_rank(dict(values))
    for rank, other in enumerate(others, start=1):
        for name in first | other:
            mine, its = (of.get(name, "none") for of in (first, other))
            if mine != its and str(mine) != str(its):  # not a number is unlike itself
                raise shared_refusal(
                    f"the ranks disagree on {name}: rank 0 has {mine}, rank {rank} has {its}; "
                    f"{otherwise}"
                )


def rank_0_alone(work: Callable[[], None], world: World, device: torch.device) -> None:
    """Run ``work`` on rank 0, for hours if need be, while the other ranks wait.

    A barrier would give up after the timeout of the process group. So the ranks ask each other
    every now and then whether rank 0 has finished. All ranks raise its RefusedError; another error
    is raised on rank 0, and the others raise ElsewhereError. Meanwhile rank 0 may use the CPUs of
    all ranks of its node.
    """
    future = None
    if world.rank == 0:
        future = ThreadPoolExecutor(1, initializer=have_the_nodes_cpus).submit(work)
    pause_s = 0.05
    while any_rank(future is not None and not wait([future], pause_s).done, device):
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    error = None if future is None else future.exception()
    refusal = str(error) if isinstance(error, RefusedError) else ""
    refusal, has_failed = from_rank_0((refusal, error is not None))
    if refusal:
        raise shared_refusal(refusal)
    if has_failed:
        raise error or ElsewhereError


def have_the_nodes_cpus() -> None:
    """Give this thread, and what it starts, the CPUs of all ranks of this node.

    SPAWNLAUNCH_NODE_CPUS lists them as the kernel does: 0-3,8. Without it nothing changes.
    """
    spans = [span.split("-") for span in os.environ.get("SPAWNLAUNCH_NODE_CPUS", "").split(",")]
    with suppress(OSError, ValueError, AttributeError):  # malformed; not allowed; no Linux
        cpus = {cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)}
        os.sched_setaffinity(0, cpus)


def from_rank_0(value: T) -> T:
    """Return rank 0's value on every rank; the values of the others are ignored."""
    if not dist.is_initialized():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
