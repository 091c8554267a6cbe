"""Measure whether the machine is quiet: the CPU time of other processes, and the waits of this one.

Others are all processes but this one, its children that have ended, and its descendants that run.
Sources: proc(5) for stat; Documentation/scheduler/sched-stats.rst for schedstat, whose wait is that
of this process alone; Documentation/accounting/psi.rst for pressure, the time in which any process
waited for a CPU, also of this program, so it is printed and not judged.
"""

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from spawnlaunch.bench.effort import TICK_S, cpu_ticks

PATIENCE_S = 300.0
LOOK_S = 2.0
LOOKS = 3  # in a row that have to be quiet
MOST = 0.1  # of a CPU, that others may have


class Counters(NamedTuple):
    """The counters at one moment."""

    at: float
    busy_s: float
    program_s: float
    waited_s: float
    pressure_s: float


class Use(NamedTuple):
    """The use of the CPUs by other processes over some time."""

    took_s: float
    others: float  # CPUs that they had, in the mean
    waited_s: float  # this process, for a CPU
    pressure: float  # share of the time in which any process waited for one

    @property
    def is_quiet(self) -> bool:
        return self.others <= MOST

    def __str__(self) -> str:
        return (
            f"others had {self.others:.2f} CPUs, this program waited {self.waited_s:.1f} s of "
            f"{self.took_s:.0f}, and in {self.pressure:.0%} of the time something waited"
        )


def look() -> Counters:
    """Read the counters now; one that cannot be read is 0."""
    busy, stolen = cpu_ticks(_text("/proc/stat"), frozenset(os.sched_getaffinity(0)))
    ended = os.times()
    program_s = sum(ended[:4])
    for child in psutil.Process().children(recursive=True):
        try:
            its = child.cpu_times()
        except psutil.Error:
            continue
        program_s += its.user + its.system + its.children_user + its.children_system
    waited = _text("/proc/self/schedstat").split()[1:2] or ["0"]
    some = _text("/proc/pressure/cpu").partition("total=")[2].split()[:1] or ["0"]
    return Counters(
        time.monotonic(),
        TICK_S * ((busy or 0) + (stolen or 0)),
        program_s,
        int(waited[0]) / 1e9,
        int(some[0]) / 1e6,
    )


def use(before: Counters, now: Counters) -> Use:
    """The use between two moments."""
    took_s = max(now.at - before.at, 1e-9)
    others_s = (now.busy_s - before.busy_s) - (now.program_s - before.program_s)
    return Use(
        took_s,
        max(0.0, others_s / took_s),
        now.waited_s - before.waited_s,
        min(1.0, (now.pressure_s - before.pressure_s) / took_s),
    )


def wait(patience_s: float = PATIENCE_S, look_s: float = LOOK_S) -> Use:
    """Wait until other processes leave the CPUs alone; return the use in the last interval."""
    end = time.monotonic() + patience_s
    quiet = 0
    while True:
        before = look()
        time.sleep(look_s)
        last_use = use(before, look())
        quiet = quiet + 1 if last_use.is_quiet else 0
        if quiet == LOOKS or time.monotonic() >= end:
            return last_use
        if not last_use.is_quiet:
            line = f"waiting for quiet, {end - time.monotonic():.0f} s at most: {last_use}"
            print(line, file=sys.stderr, flush=True)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
