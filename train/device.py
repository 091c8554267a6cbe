"""Choose the device of this process, and measure its memory and its steps."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import profile, schedule

from .distributed import World
from .errors import RefusedError


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
            "start as many workers per node as it has devices, or type --device cpu"
        )
    return torch.device("cuda", index)


def peak_bytes(device: torch.device) -> int:
    """The most memory this process had: of the device, or of the machine where it used none."""
    if device.type != "cpu":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): kilobytes, on macOS bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


SKIPPED, WARM_UP, RECORDED = 5, 1, 3  # steps


@contextmanager
def profiling(wanted: bool, trace: Path) -> Iterator[Callable[[], None] | None]:
    """Write a trace of a few steps, after the first ones; call what is yielded after each step."""
    if not wanted:
        yield None
        return

    def write(recorded: Any) -> None:
        recorded.export_chrome_trace(str(trace))

    steps = schedule(skip_first=SKIPPED, wait=0, warmup=WARM_UP, active=RECORDED, repeat=1)
    with profile(schedule=steps, on_trace_ready=write) as recorder:
        yield recorder.step
