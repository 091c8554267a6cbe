"""What a workload knows of the ranks that run it together, and how it is timed."""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from spawnlaunch.bench import effort

WARM_UP_S = 0.05
WARM_UP_STEPS = 2
MOST_STEPS = 100  # of a window that are kept


class Rank(NamedTuple):
    """This rank as a workload sees it: one of `size`; `local_size` of them are on this node."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    threads: int  # that this rank computes with
    device: torch.device  # "cpu" unless every rank has a device of its own
    seconds: float  # to be timed for
    watch: effort.Watch  # of what that costs
    loader_workers: int  # of a DataLoader

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            dist.barrier()

    def from_rank_0(self, number: int) -> int:
        """Rank 0's number, on every rank."""
        box: list[Any] = [number]
        if self.size > 1:
            dist.broadcast_object_list(box, src=0)
        return int(box[0])

    def wait_for_device(self) -> None:
        """Until what was queued there is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def steps_per_second(rank: Rank, step: Callable[[], object]) -> float:
    """How often this rank alone can do `step`, while all other ranks do the same.

    All are timed for the same time, not for the same work: who is done early would leave the
    others a quieter machine.
    """
    _warm_up(rank, step)
    rank.barrier()
    rank.watch.start()
    ends = [time.perf_counter()]
    while ends[-1] - ends[0] < rank.seconds:
        step()
        rank.wait_for_device()
        ends.append(time.perf_counter())
    rank.watch.stop()
    rank.watch.steps.append(kept_steps(ends))
    return (len(ends) - 1) / (ends[-1] - ends[0])


def kept_steps(ends: Sequence[float]) -> list[float]:
    """Seconds of each step, from the times at which they ended; of many, several at once."""
    every = math.ceil((len(ends) - 1) / MOST_STEPS)
    marks = ends[::every]
    return [float(f"{(b - a) / every:.4g}") for a, b in itertools.pairwise(marks)]


def steps_together_per_second(rank: Rank, step: Callable[[], object]) -> float:
    """How often all ranks can do `step`, in which they wait for each other.

    So all have to do it equally often; rank 0 says how often.
    """
    step_s = 1.0
    for _ in range(WARM_UP_STEPS):
        began = time.perf_counter()
        step()
        rank.wait_for_device()
        step_s = time.perf_counter() - began
    count = rank.from_rank_0(max(1, math.ceil(rank.seconds / step_s)))
    rank.barrier()
    rank.watch.start()
    ends = [time.perf_counter()]
    for _ in range(count):
        step()
        if count <= MOST_STEPS:  # else steps are short, and to wait for each would lengthen them
            rank.wait_for_device()
            ends.append(time.perf_counter())
    rank.wait_for_device()
    took_s = time.perf_counter() - ends[0]
    rank.watch.stop()
    rank.watch.steps.append(kept_steps(ends) if len(ends) > 1 else [])
    return count / took_s


def _warm_up(rank: Rank, step: Callable[[], object]) -> None:
    """First touch of the memory, the threads of the library, the clock of the core."""
    began, done = time.perf_counter(), 0
    while done < WARM_UP_STEPS or time.perf_counter() - began < WARM_UP_S:
        step()
        rank.wait_for_device()
        done += 1
