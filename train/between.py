"""What happens between steps: collecting garbage, and recording a profile."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.profiler import profile, schedule

SKIPPED, WARM_UP, RECORDED = 5, 1, 3  # steps


@contextmanager
def collecting(every: int) -> Iterator[Callable[[int], None]]:
    """Collect garbage after every ``every``-th step and at no other time; 0: as Python does it.

    A collection takes tens of milliseconds, and Python begins it at another moment on each rank,
    while all the others wait. Between the same two steps everywhere it costs its time once.
    """
    if not every:
        yield lambda _: None
        return

    def collect(step: int) -> None:
        if step % every == 0:
            gc.collect(1)

    gc.collect()
    gc.disable()
    try:
        yield collect
    finally:
        gc.enable()


@contextmanager
def profiling(wanted: bool, trace: Path) -> Iterator[Callable[[], None]]:
    """Write a trace of a few steps, after the first ones; call what is yielded after each step."""
    if not wanted:
        yield lambda: None
        return

    def write(recorded: Any) -> None:
        recorded.export_chrome_trace(str(trace))

    steps = schedule(skip_first=SKIPPED, wait=0, warmup=WARM_UP, active=RECORDED, repeat=1)
    with profile(schedule=steps, on_trace_ready=write) as recorder:
        yield recorder.step
