"""How busy other processes keep this machine: what a test that compares times has to know."""

import os
import time
from pathlib import Path
from typing import NamedTuple

IDLE = (3, 4)  # fields of "cpu" in /proc/stat, proc(5): idle and iowait


class Look(NamedTuple):
    """Seconds since some beginning."""

    clock: float
    busy: float  # of all CPUs together
    ours: float  # of this process and its children that have ended


def look() -> Look:
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    ticks = sum(fields) - sum(fields[i] for i in IDLE)
    own = os.times()
    ours = own.user + own.system + own.children_user + own.children_system
    return Look(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), ours)


def of_others(before: Look, after: Look) -> float:
    """The CPUs that others kept busy on average; what the hypervisor took away counts."""
    ours = after.ours - before.ours
    return max(0.0, after.busy - before.busy - ours) / (after.clock - before.clock)
