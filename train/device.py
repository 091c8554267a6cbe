"""What this process computes on: how fast it can be, its memory, and a profile of its steps."""

from __future__ import annotations

import ctypes
import gc
import os
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

# Dense 16-bit matrix products, in TFLOP/s, by a part of the name that the driver gives the device.
# Sources: the makers' data sheets. An MI250X shows each of its two dies as a device.
PEAK_TFLOPS = {
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "V100": 125.0,
    "MI300X": 1307.0,
    "MI250X": 191.5,
}


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


def peak_tflops(told: float | None, device: torch.device, precision: str) -> float | None:
    """The most that one device can do at this precision; None if nobody knows."""
    if told is not None or device.type == "cpu" or precision == "fp32":
        return told
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAK_TFLOPS.items() if part in name), None)


# mallopt(3): from malloc.h. A user may have set the same by these variables.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
KEPT_BYTES = 1 << 30


def keep_freed(device: torch.device) -> bool:
    """Let a process that computes on a CPU keep what it frees; whether that could be had.

    A step frees its activations, and glibc gives large blocks back to the kernel, which hands out
    new pages in the next step and clears each of them first: thousands of them in every step of the
    bundled model. A device's memory is kept by torch.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not on macOS, nor with musl
    if device.type != "cpu" or mallopt is None or any(name in os.environ for name in VARIABLES):
        return False
    return bool(mallopt(TRIM_THRESHOLD, KEPT_BYTES) and mallopt(MMAP_THRESHOLD, KEPT_BYTES))


def peak_bytes(device: torch.device) -> int:
    """The most memory this process had: of the device, or of the machine where it used none."""
    if device.type != "cpu":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): kilobytes, on macOS bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def without_collections(wanted: bool) -> Iterator[None]:
    """Let Python collect no garbage by itself in here.

    A collection takes tens of milliseconds, and Python begins it at another moment on each rank,
    while all the others wait. Between the same two steps everywhere it costs its time once. What is
    there already, as modules and samples, is left out of collections, so that whole ones are quick.
    """
    if not wanted:
        yield
        return
    gc.collect()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


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
