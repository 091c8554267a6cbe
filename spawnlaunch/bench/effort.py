"""Measure a sample's effort on a rank: time waited, context switches, memory pages, clock rate.

Sources: Documentation/scheduler/sched-stats.rst for schedstat (nanoseconds run, nanoseconds ready
and not run); proc(5) for stat, numa_maps and task/*/children; sched(7) for se.nr_migrations of
task/*/sched; Documentation/admin-guide/pm/cpufreq.rst; thermal_throttle and, of a container with a
quota, cpu.stat of cgroup-v2.rst. Any of them may be missing: then its value is None.
"""

import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from spawnlaunch.base import cpuset
from spawnlaunch.node import cgroup, sysfs
from spawnlaunch.node.cpus import read_numa

TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # in which /proc/stat counts
WAITED = 0.05  # share of its time; a sample that waited longer was disturbed, if others ran then
WAITED_ON = "waited on"  # begins the mark of a sample that others disturbed; the host follows
OTHERS = 0.1  # of a CPU, that others had
OTHERS_EACH = 0.02  # of each of many CPUs
TICKS = 3  # fewer are within the error of /proc/stat
SECONDS = ("took_s", "ran_s", "waited_s", "busy_s", "stolen_s")
COUNTED = (*SECONDS, "involuntary", "migrations", "throttled")
CPU = "/sys/devices/system/cpu/cpu"


class Effort(NamedTuple):
    """The effort of a rank's process, its threads and children during a measurement."""

    took_s: float
    ran_s: float | None = None  # of all threads together
    waited_s: float | None = None  # ready to run, and not run
    busy_s: float | None = None  # that the CPUs of the arm's ranks on the node ran any process
    stolen_s: float | None = None  # that a hypervisor ran other machines on them
    involuntary: int | None = None  # switches away from a thread that would have gone on
    migrations: int | None = None  # of threads, to another CPU
    local_pages: float | None = None  # share of the memory that is on NUMA nodes of the rank's CPUs
    mhz: float | None = None  # of the rank's CPUs, at the end
    throttled: int | None = None  # times that heat, or a container's quota, held the CPUs back
    cpus: int = 0  # how many busy_s and stolen_s count: those of all ranks of this arm on the node
    strayed: str = ""  # the CPUs of a thread that is not bound as the arm says; "" for none

    @property
    def waited(self) -> float:
        """The share of the time that threads were ready to run and were not run."""
        if self.ran_s is None or self.waited_s is None:
            return 0.0
        return self.waited_s / max(self.ran_s + self.waited_s, 1e-9)


class _Counts(NamedTuple):
    """Counters at one moment."""

    at: float
    ran_ns: int
    waited_ns: int
    busy: int | None  # ticks
    stolen: int | None
    involuntary: int
    migrations: int | None
    throttled: int | None


class Watch:
    """Measures the effort of this process between `start` and `stop`; several times are added."""

    def __init__(self, cpus: cpuset.CpuSet, node_cpus: cpuset.CpuSet) -> None:
        self._cpus = cpus  # of this rank
        self._node_cpus = node_cpus  # of all ranks of the arm on this node
        self._began: _Counts | None = None
        self.effort: Effort | None = None
        self.steps: list[list[float]] = []  # of each window, the seconds of each step

    def start(self) -> None:
        """Begin to count."""
        self._began = self._look()

    def stop(self) -> None:
        """Stop counting, while the memory, threads and children of the work still exist."""
        assert self._began is not None
        began, now = self._began, self._look()
        found = Effort(
            took_s=now.at - began.at,
            ran_s=(now.ran_ns - began.ran_ns) / 1e9,
            waited_s=(now.waited_ns - began.waited_ns) / 1e9,
            busy_s=_ticks(now.busy, began.busy),
            stolen_s=_ticks(now.stolen, began.stolen),
            involuntary=now.involuntary - began.involuntary,
            migrations=_less(now.migrations, began.migrations),
            local_pages=local_share(sysfs.text("/proc/self/numa_maps"), _nodes_of(self._cpus)),
            mhz=_mhz(self._cpus),
            throttled=_less(now.throttled, began.throttled),
            cpus=len(self._node_cpus),
            strayed=_strayed(self._cpus),
        )
        self.effort = found if self.effort is None else added(self.effort, found)

    def _look(self) -> _Counts:
        tasks = list(_tasks())
        texts = [(sysfs.text(f"{task}/schedstat") or "").split() for task in tasks]
        busy, stolen = cpu_ticks(sysfs.text("/proc/stat") or "", self._node_cpus)
        moved = [_migrations(task) for task in tasks]
        return _Counts(
            time.perf_counter(),
            sum(int(each[0]) for each in texts if each),
            sum(int(each[1]) for each in texts if len(each) > 1),
            busy,
            stolen,
            resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
            None if None in moved else sum(each for each in moved if each is not None),
            _throttled(self._cpus),
        )


Ticks = tuple[int | None, int | None]


def of_command(
    took_s: float, schedstat: str, used: resource.struct_rusage, before: Ticks, after: Ticks
) -> Effort:
    """The effort of a user's command, from its first thread's schedstat and its whole rusage."""
    waited = [int(word) for word in schedstat.split()[1:2]]
    return Effort(
        took_s,
        used.ru_utime + used.ru_stime,
        waited[0] / 1e9 if waited else None,
        _ticks(after[0], before[0]),
        _ticks(after[1], before[1]),
        used.ru_nivcsw,
    )


def added(one: Effort, two: Effort) -> Effort:
    """The sum of two windows of one sample; values that cannot be added are those of the last."""
    pairs = {name: (getattr(one, name), getattr(two, name)) for name in COUNTED}
    sums = {name: sum(pair) for name, pair in pairs.items() if None not in pair}
    return two._replace(**sums, strayed=one.strayed or two.strayed)


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
            return f"{WAITED_ON} {host} for processes that are not of this bench"
        if (effort.stolen_s or 0) > least_s:
            return f"a hypervisor held the CPUs of {host} back"
        if effort.throttled:
            return f"CPUs of {host} were throttled"
    return ""


def cpu_ticks(stat: str, cpus: cpuset.CpuSet) -> Ticks:
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


def local_share(numa_maps: str | None, nodes: frozenset[int]) -> float | None:
    """The share of a process's own memory that is on these NUMA nodes.

    A line has `anon=3 N0=2 N1=1 kernelpagesize_kB=4` among its words (proc(5)); files are left out.
    """
    here = total = 0
    for line in (numa_maps or "").splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "anon" not in words:
            continue
        size = int(words.get("kernelpagesize_kB", 4))
        for name, count in words.items():
            if name[0] == "N" and name[1:].isdigit():
                total += int(count) * size
                here += int(count) * size * (int(name[1:]) in nodes)
    return here / total if total and nodes else None


def _tasks() -> Iterator[str]:
    """Yield the directories of all threads of this process and of its children, as of loaders."""
    own = [f"/proc/self/task/{thread}" for thread in sysfs.names("/proc/self/task")]
    yield from own
    for task in own:
        for child in (sysfs.text(f"{task}/children") or "").split():
            yield from (f"/proc/{child}/task/{i}" for i in sysfs.names(f"/proc/{child}/task"))


def _migrations(task: str) -> int | None:
    said = sysfs.fields(f"{task}/sched", ":").get("se.nr_migrations", "")
    return int(said) if said.isdigit() else None


def _ticks(now: int | None, before: int | None) -> float | None:
    return None if now is None or before is None else (now - before) * TICK_S


def _less(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


@lru_cache
def _nodes_of(cpus: cpuset.CpuSet) -> frozenset[int]:
    warnings: list[str] = []
    return frozenset(each.id for each in read_numa("", cpus, warnings) if each.cpus & cpus)


def _mhz(cpus: cpuset.CpuSet) -> float | None:
    """The mean clock rate of CPUs in MHz, from scaling_cur_freq, which is in kHz."""
    found = [sysfs.number(f"{CPU}{cpu}/cpufreq/scaling_cur_freq") for cpu in cpus]
    known = [each / 1e3 for each in found if each]
    return sum(known) / len(known) if known else None


def _throttled(cpus: cpuset.CpuSet) -> int | None:
    paths = [f"{CPU}{cpu}/thermal_throttle/core_throttle_count" for cpu in cpus]
    counts = [count for path in paths if (count := sysfs.number(path)) is not None]
    quota = _quota_file()
    if quota:
        counts.append(int(sysfs.fields(quota).get("nr_throttled", 0)))
    return sum(counts) if counts else None


@lru_cache
def _quota_file() -> str:
    files = (f"{place}/cpu.stat" for place in cgroup.directories("", "cpu"))
    return next((file for file in files if os.path.exists(file)), "")


def _strayed(cpus: cpuset.CpuSet) -> str:
    """The mask of a thread that may run outside these CPUs, because a library has moved it."""
    for task in sysfs.names("/proc/self/task"):
        said = sysfs.fields(f"/proc/self/task/{task}/status", ":").get("Cpus_allowed_list")
        if cpus and said and not cpuset.parse(said) <= cpus:
            return said
    return ""


def kept(effort: Effort | None) -> dict[str, float | int | str] | None:
    """The known values of an effort, for a file."""
    if effort is None:
        return None
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in effort._asdict().items()
        if value not in (None, "")
    }


def read(said: Mapping[str, object] | None) -> Effort | None:
    """Read an effort that `kept` wrote."""
    return None if said is None else Effort(**said)  # type: ignore[arg-type]
