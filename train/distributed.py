"""Who this worker is among how many, and the two things workers tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from .errors import RefusedError

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """``rank`` of ``size`` workers; ``local_rank`` counts those of this node."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0


def read_world(environ: Mapping[str, str]) -> World:
    """The place a launcher gave this worker; without RANK and WORLD_SIZE, a world of one.

    Raises RefusedError when the launcher's variables are incomplete or contradict each other.
    """
    if "RANK" not in environ and "WORLD_SIZE" not in environ:
        return World()
    numbers = []
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        text = environ.get(name, "")
        if not text.isdecimal():
            seen = f"is {text!r}" if name in environ else "is not set"
            raise RefusedError(
                f"{name} {seen}, and RANK, WORLD_SIZE and LOCAL_RANK go together as numbers; "
                "start the workers with a launcher, or unset them all to train with one process"
            )
        numbers.append(int(text))
    world = World(*numbers)
    if world.rank >= world.size:
        raise RefusedError(
            f"RANK is {world.rank} but WORLD_SIZE is {world.size}; ranks count from 0 to "
            "WORLD_SIZE - 1"
        )
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
    if world.size > 1 and missing:
        raise RefusedError(
            f"WORLD_SIZE is {world.size} but {' and '.join(missing)} not set; export the host of "
            "rank 0 as MASTER_ADDR and a free port there as MASTER_PORT"
        )
    return world


def pick_device(wanted: str, world: World, visible: int) -> torch.device:
    """The device of this worker, of ``visible`` CUDA or ROCm devices.

    A launcher either shows every worker all devices, and LOCAL_RANK counts them, or shows each
    worker its own one. Raises RefusedError when neither is so.
    """
    if wanted == "cpu" or (wanted == "auto" and visible == 0):
        return torch.device("cpu")
    index = 0 if visible == 1 else world.local_rank
    if index >= visible:
        raise RefusedError(
            f"LOCAL_RANK is {world.local_rank} but {visible} CUDA devices are visible; start as "
            "many workers per node as it has devices, or type --device cpu"
        )
    return torch.device("cuda", index)


def join(world: World, device: torch.device) -> None:
    """Meet the other workers; a world of one has nobody to meet."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world.size == 1:
        return
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")


def leave() -> None:
    """Part from the other workers. Without it, gloo's threads may abort the exiting process."""
    if dist.is_initialized():
        dist.destroy_process_group()


def sum_over_ranks(values: Tensor) -> Tensor:
    """``values`` added up over all ranks, in place."""
    if dist.is_initialized():
        dist.all_reduce(values)
    return values


def from_rank_0(value: T) -> T:
    """What rank 0 passed, on every rank; what the others passed is ignored."""
    if not dist.is_initialized():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
