"""The ranks that run a workload together, and the way in which its steps are timed."""

import math
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from spawnlaunch.bench import effort

WARM_UP_S = 0.05
WARM_UP_STEPS = 2
MOST_STEPS = 100  # of a sample that are recorded


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

    def wait_for_device(self) -> None:
        """Wait until the device has done all that was queued."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def steps_per_second(rank: Rank, step: Callable[[], object]) -> float:
    """How often this rank alone can do `step`, while all other ranks do the same.

    All are timed for the same time, not for the same work: a rank that ends early would leave the
    others a quieter machine.
    """
    # Warm up: the first touch of the memory, the library's threads, the clock of the core.
    began, done = time.perf_counter(), 0
    while done < WARM_UP_STEPS or time.perf_counter() - began < WARM_UP_S:
        _timed(rank, step)
        done += 1
    rank.barrier()
    rank.watch.start()
    began, times = time.perf_counter(), []
    while time.perf_counter() - began < rank.seconds:
        times.append(_timed(rank, step))
    took_s = time.perf_counter() - began
    rank.watch.stop()
    rank.watch.steps.append([times[i] for i in draw_steps(len(times))])
    return len(times) / took_s


def draw_steps(count: int, seed: int | None = None) -> list[int]:
    """Draw the steps that are recorded: single ones, since a mean of several has no tail.

    They are random: with a DataLoader of four workers every fourth step may be one that waits.
    """
    return sorted(random.Random(seed).sample(range(count), min(count, MOST_STEPS)))


def _timed(rank: Rank, step: Callable[[], object]) -> float:
    """Seconds of one step."""
    began = time.perf_counter()
    step()
    rank.wait_for_device()
    return time.perf_counter() - began


def steps_together_per_second(rank: Rank, step: Callable[[], object]) -> float:
    """How often all ranks can do `step`, in which they wait for each other.

    So all have to do it equally often; rank 0 sets the count, and draws the steps that are
    recorded.
    """
    for _ in range(WARM_UP_STEPS):
        step_s = _timed(rank, step)
    box: list[Any] = [max(1, math.ceil(rank.seconds / step_s)), time.time_ns()]
    if rank.size > 1:
        dist.broadcast_object_list(box, src=0)
    count, recorded, times = int(box[0]), set(draw_steps(*box)), []
    rank.barrier()
    rank.watch.start()
    began = time.perf_counter()
    for i in range(count):
        if i in recorded:  # to wait for each of many short steps would lengthen them
            rank.wait_for_device()
            times.append(_timed(rank, step))
        else:
            step()
    rank.wait_for_device()
    took_s = time.perf_counter() - began
    rank.watch.stop()
    rank.watch.steps.append(times)
    return count / took_s
