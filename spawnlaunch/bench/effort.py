"""Measure a sample's effort on a rank: the time that its threads ran, and that they waited.

Sources: Documentation/scheduler/sched-stats.rst for schedstat (nanoseconds run, nanoseconds ready
and not run); proc(5) for stat and task/*/children; thermal_throttle and, of a container with a
quota, cpu.stat of cgroup-v2.rst. Any of them may be missing: then its value is None.
"""

import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spawnlaunch.base import cpuset
from spawnlaunch.node import cgroup, sysfs

TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # in which /proc/stat counts
WAITED = 0.05  # share of its time; a sample that waited longer was disturbed, if others ran then
OTHERS = 0.1  # of a CPU, that others had
OTHERS_EACH = 0.02  # of each of many CPUs
TICKS = 3  # fewer are within the error of /proc/stat
COUNTED = ("took_s", "ran_s", "waited_s", "busy_s", "stolen_s", "throttled")
CPU = "/sys/devices/system/cpu/cpu"

Used = tuple[float | None, float | None]  # seconds that CPUs were busy, and that were stolen


class Effort(NamedTuple):
    """The effort of a rank's process, its threads and children during a measurement."""

    took_s: float
    ran_s: float | None = None  # of all threads together
    waited_s: float | None = None  # ready to run, and not run
    busy_s: float | None = None  # that the CPUs of the arm's ranks on the node ran any process
    stolen_s: float | None = None  # that a hypervisor ran other machines on them
    throttled: int | None = None  # times that heat, or a container's quota, held the CPUs back
    cpus: int = 0  # how many busy_s and stolen_s count: those of all ranks of this arm on the node
    strayed: str = ""  # the CPUs of a thread that is not bound as the arm says; "" for none

    @property
    def waited(self) -> float:
        """The share of the time that threads were ready to run and were not run."""
        if self.ran_s is None or self.waited_s is None:
            return 0.0
        return self.waited_s / max(self.ran_s + self.waited_s, 1e-9)


class Watch:
    """Measures the effort of this process between `start` and `stop`; several times are added."""

    def __init__(self, cpus: cpuset.CpuSet, node_cpus: cpuset.CpuSet) -> None:
        self._cpus = cpus  # of this rank
        self._node_cpus = node_cpus  # of all ranks of the arm on this node
        files = (f"{place}/cpu.stat" for place in cgroup.directories("", "cpu"))
        self._quota_file = next((file for file in files if os.path.exists(file)), "")
        self._began: Effort | None = None
        self.effort: Effort | None = None
        self.steps: list[list[float]] = []  # of each window, the seconds of each step

    def start(self) -> None:
        """Begin to count."""
        self._began = self._counters()

    def stop(self) -> None:
        """Stop counting, while the threads and children of the work still exist."""
        assert self._began is not None
        counted = _combined(self._counters(), self._began, -1)
        strayed = ""
        for task in sysfs.names("/proc/self/task"):
            mask = sysfs.fields(f"/proc/self/task/{task}/status", ":").get("Cpus_allowed_list")
            if self._cpus and mask and not cpuset.parse(mask) <= self._cpus:
                strayed = mask  # of a thread that a library has moved
                break
        counted = counted._replace(cpus=len(self._node_cpus), strayed=strayed)
        self.effort = counted if self.effort is None else _combined(counted, self.effort, 1)

    def _counters(self) -> Effort:
        """The counters at this moment, since times of their own."""
        texts = [(sysfs.text(f"{task}/schedstat") or "").split() for task in _tasks()]
        paths = [f"{CPU}{cpu}/thermal_throttle/core_throttle_count" for cpu in self._cpus]
        counts = [count for path in paths if (count := sysfs.number(path)) is not None]
        if self._quota_file:
            counts.append(int(sysfs.fields(self._quota_file).get("nr_throttled", 0)))
        return Effort(
            time.perf_counter(),
            sum(int(each[0]) for each in texts if each) / 1e9,
            sum(int(each[1]) for each in texts if len(each) > 1) / 1e9,
            *busy_and_stolen_s(self._node_cpus),
            throttled=sum(counts) if counts else None,
        )


def _combined(first: Effort, second: Effort, sign: int) -> Effort:
    """The sum or difference of what is counted; None where one of the values is not known."""
    pairs = {name: (getattr(first, name), getattr(second, name)) for name in COUNTED}
    sums: dict[str, Any] = {
        name: None if None in pair else pair[0] + sign * pair[1] for name, pair in pairs.items()
    }
    return first._replace(**sums, strayed=first.strayed or second.strayed)


def of_command(
    took_s: float, schedstat: str, used: resource.struct_rusage, before: Used, after: Used
) -> Effort:
    """The effort of a user's command, from its first thread's schedstat and its whole rusage."""
    waited = [int(word) for word in schedstat.split()[1:2]]
    waited_s = waited[0] / 1e9 if waited else None
    ended = Effort(took_s, used.ru_utime + used.ru_stime, waited_s, *after)
    return _combined(ended, Effort(0.0, 0.0, 0.0, *before), -1)


def disturbed(ranks: Sequence[tuple[str, Effort | None]]) -> str:
    """The reason why a sample is marked as disturbed, by the host and effort of each rank; or "".

    An arm that puts several ranks on one core makes them wait for each other, which the bench shall
    measure. So waiting counts only where other processes had the CPUs of the node in that time.
    """
    for host, effort in ranks:
        if effort is None:
            continue
        share = max(OTHERS, OTHERS_EACH * effort.cpus)  # daemons use a little of each CPU
        least_s = max(share * effort.took_s, TICKS * TICK_S)
        used_s = sum(each.ran_s or 0 for other, each in ranks if each and other == host)
        others_s = 0.0 if effort.busy_s is None else effort.busy_s - used_s
        if effort.waited > WAITED and others_s > least_s:
            return f"waited on {host} for processes that are not of this bench"
        if (effort.stolen_s or 0) > least_s:
            return f"a hypervisor held the CPUs of {host} back"
        if effort.throttled:
            return f"CPUs of {host} were throttled"
    return ""


def busy_and_stolen_s(cpus: cpuset.CpuSet) -> Used:
    """The seconds that these CPUs were busy, and that were stolen; None: not known."""
    busy, stolen = cpu_ticks(sysfs.text("/proc/stat") or "", cpus)
    return None if busy is None else busy * TICK_S, None if stolen is None else stolen * TICK_S


def cpu_ticks(stat: str, cpus: cpuset.CpuSet) -> tuple[int | None, int | None]:
    """The ticks that these CPUs were busy, and that were stolen, since the start of the machine.

    Lines read `cpu0 user nice system idle iowait irq softirq steal guest guest_nice` (proc(5)).
    """
    busy = stolen = 0
    known = False
    for line in stat.splitlines():
        name, *words = line.split()
        number = name.removeprefix("cpu")
        if name == number or not number.isdigit() or int(number) not in cpus or len(words) < 8:
            continue
        ticks = [int(word) for word in words[:8]]
        known, stolen = True, stolen + ticks[7]
        busy += sum(ticks[i] for i in (0, 1, 2, 5, 6))
    return (busy, stolen) if known else (None, None)


def _tasks() -> Iterator[str]:
    """Yield the directories of all threads of this process and of its children, as of loaders."""
    threads = [f"/proc/self/task/{thread}" for thread in sysfs.names("/proc/self/task")]
    yield from threads
    for task in threads:
        for child in (sysfs.text(f"{task}/children") or "").split():
            yield from (f"/proc/{child}/task/{i}" for i in sysfs.names(f"/proc/{child}/task"))


def as_json(effort: Effort | None) -> dict[str, float | int | str] | None:
    """The known values of an effort, for a file."""
    if effort is None:
        return None
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in effort._asdict().items()
        if value not in (None, "")
    }


def read(fields: Mapping[str, object] | None) -> Effort | None:
    """Read an effort that `as_json` made."""
    return None if fields is None else Effort(**fields)  # type: ignore[arg-type]
