"""The ways in which a process is kept from running from outside, not by its program.

    frozen         by the freezer of its control group, or of one above it
    stopped        by a signal
    tracing-stop   by a debugger
    swapped        most of its memory is not there, so that it waits for the disk
    disk-sleep     it waits for a disk or a driver, so that no signal reaches it

Sources: proc(5), State and VmSwap of /proc/PID/status; cgroup.freeze in cgroup-v2.rst, and
freezer.self_freezing in cgroup-v1/freezer-subsystem.rst.
"""

from __future__ import annotations

from spawnlaunch.base import records
from spawnlaunch.node import cgroup, proc, sysfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FREEZERS = {  # files that say "1" in a group that was frozen, and how it is thawed
    "cgroup.freeze": "echo 0 > {place}/cgroup.freeze",
    "freezer.self_freezing": "echo THAWED > {place}/freezer.state",
}
STATES = {"T": "stopped", "t": "tracing-stop", "D": "disk-sleep"}
WORDS = {
    "stopped": "stopped; run kill -CONT {pid}",
    "tracing-stop": "stopped by a debugger",
    "disk-sleep": "in an uninterruptible sleep: it waits for a disk or a driver",
}
MUTE = frozenset({"frozen", "stopped", "tracing-stop"})  # nothing of it runs
SWAPPED_KIB = 64 << 10  # pages from a library's start, no longer needed, may well be swapped out


class Held(records.NamedTuple):
    """The way in which a process is held, and the words for it."""

    kind: str
    words: str  # after "it is", with the command to use, where one helps

    @property
    def is_mute(self) -> bool:
        """Whether no thread of the process can answer."""
        return self.kind in MUTE


def status(pid: int) -> Mapping[str, str]:
    """The lines of /proc/PID/status; none where the process has ended or cannot be seen."""
    return sysfs.fields(f"/proc/{pid}/status", ":") if proc.is_proc_usable() else {}


def look(pid: int, status: Mapping[str, str], may_be_frozen: bool = True) -> Held | None:
    """Return how a process with that `status` is held; None: in no way that can be seen."""
    thaw = _thaw(pid) if may_be_frozen else ""
    if thaw:
        return Held("frozen", f"frozen by its control group; run {thaw}")
    kind = STATES.get(status.get("State", "?")[:1], "")
    swapped, there = (int(status.get(name, "0").split()[0]) for name in ("VmSwap", "VmRSS"))
    if kind not in MUTE and swapped > max(SWAPPED_KIB, there):
        return Held("swapped", f"swapped out: {swapped >> 10} MiB, and {there >> 10} are in memory")
    return Held(kind, WORDS[kind].format(pid=pid)) if kind else None


def _thaw(pid: int) -> str:
    """The command that thaws the process; "" where it is not frozen."""
    places = [p for kind in ("freezer", "") for p in cgroup.directories("", kind, str(pid))]
    for place in places:
        for file, command in FREEZERS.items():
            if sysfs.text(f"{place}/{file}") == "1":
                return command.format(place=place)
    return ""
