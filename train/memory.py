"""The memory of this process: what it keeps between steps, and the most it had."""

from __future__ import annotations

import ctypes
import os
import resource
import sys

import torch

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
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): kilobytes, on macOS bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
