"""The use of resources by each rank: a look at all of them, and the difference to the one before.

Figures of a rank are of its process, but for these, which are also of the processes that it has
started (DataLoader workers): CPU time, processes, bytes read and written. A process that has ended
and been waited for is in the figures of its parent (getrusage(2), RUSAGE_CHILDREN; proc(5),
/proc/pid/io).

    cpu          CPU seconds per second since the look before: 1.5 is one and a half cores
    elsewhere    CPUs outside the rank's mask on which one of its threads ran last
    memory       resident set, bytes; `peak` is the most so far (VmHWM)
    reads        bytes per second that came from read(2) and its like, page cache included
    quiet_s      seconds since anything was written to stdout or stderr; None: not known
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import psutil

from spawnlaunch.base import cpuset
from spawnlaunch.hang import held
from spawnlaunch.node import proc
from spawnlaunch.watch import device_use, find, output_times
from spawnlaunch.watch.progress import Progress, Reader

FIND_S = 2.0  # between two searches for ranks, ...
FIND_SHARE = 0.01  # ... which take longer where there are more processes: at most so much CPU time
THREADS_AT_ONCE = 2  # of a rank, which has dozens: all have been looked at after some samples


class Sample(NamedTuple):
    """The figures of a rank at a moment. None: not known (yet)."""

    time: float  # seconds since 1970
    host: str
    launch: str
    job: str  # the same on all nodes, where these are one launch
    starter: str  # spawnlaunch, torchrun, or another launcher
    rank: int
    local_rank: int
    world_size: int
    pid: int
    start: int  # clock ticks since boot
    command: str
    state: str  # as psutil has it: running, sleeping, disk-sleep, stopped, zombie
    held: held.Held | None  # the way in which it is kept from running
    cpu: float | None
    cpu_seconds: float  # in all
    cpus: str  # the mask of its first thread, as a list
    elsewhere: str
    memory: int
    peak: int | None
    memory_below: int  # resident sets of its descendants, added up: shared pages count each time
    threads: int
    processes: int  # that it has started and that live
    reads: float | None
    writes: float | None
    quiet_s: float | None
    output_at: float | None  # the time of that: monotonic clock, seconds
    device: device_use.DeviceUse | None
    progress: Progress | None
    # Shares of the time in which it waits for others in collectives, and others wait for it.
    wait_share: float | None = None
    late_share: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The sample as a dictionary for JSON."""
        return {
            **self._asdict(),
            "held": self.held and self.held._asdict(),
            "device": self.device and self.device._asdict(),
            "progress": self.progress and self.progress._asdict(),
        }


def from_dict(fields: Mapping[str, Any], later_s: float = 0.0) -> Sample:
    """Read a sample from such a dictionary.

    `later_s` is added to its times, which are of another node's clock.
    Raises TypeError or KeyError where the value is no sample.
    """
    device, progress, output_at = (fields[n] for n in ("device", "progress", "output_at"))
    if progress and progress["at"] is not None:
        progress = {**progress, "at": progress["at"] + later_s}
    return Sample(
        **{
            **fields,
            "held": held.Held(**fields["held"]) if fields["held"] else None,
            "device": device_use.DeviceUse(**device) if device else None,
            "progress": Progress(**progress) if progress else None,
            "output_at": None if output_at is None else output_at + later_s,
        }
    )


class _Totals(NamedTuple):
    cpu_s: float
    read: float
    written: float


class _Watched:
    """A rank, and the values that are kept between two looks at it."""

    def __init__(self, rank: find.Rank) -> None:
        self.rank = rank
        self.process = psutil.Process(rank.pid)
        self.command = _command(self.process)
        self.progress = Reader(rank.pid)
        self.before: tuple[float, _Totals] | None = None
        self.threads: list[str] = []  # of the round of looks that is under way
        self.outside: set[int] = set()
        self.elsewhere: frozenset[int] = frozenset()


class Sampler:
    """Takes samples of ranks of this user on this machine.

    They are those of the ranks that are wanted and of a launch that has `words` in its name or
    command line.
    """

    def __init__(
        self,
        meter: device_use.Meter,
        is_wanted: Callable[[find.Rank], bool] = lambda _: True,
        words: str = "",
    ) -> None:
        self._finder = find.RankFinder()
        self._meter = meter
        self._is_wanted, self._words = is_wanted, words
        self._output_times = output_times.OutputTimes()
        self._watched: dict[tuple[int, int], _Watched] = {}
        self._find_at = 0.0  # monotonic clock
        self._host = os.uname().nodename

    def sample(self) -> list[Sample]:
        """Samples of all ranks that live, those of a launch together and in their order."""
        now = time.monotonic()
        if now >= self._find_at or not self._watched:
            began = time.thread_time()
            self.find()
            self._find_at = now + max(FIND_S, (time.thread_time() - began) / FIND_SHARE)
        self._meter.begin()
        samples = []
        for key, watched in list(self._watched.items()):
            try:
                with watched.process.oneshot():
                    samples.append(self._look(watched))
            except (psutil.Error, OSError):  # it has ended
                del self._watched[key]
        return samples

    def find(self) -> None:
        """Find the ranks that there are; `sample` does so by itself now and then."""
        before, self._watched = self._watched, {}
        ranks = [rank for rank in self._finder.ranks() if self._is_wanted(rank)]
        for rank in ranks:
            key = (rank.pid, rank.start)
            try:
                self._watched[key] = before.get(key) or _Watched(rank)
            except psutil.Error:
                continue
            self._watched[key].rank = rank
            if self._words not in f"{rank.launch} {self._watched[key].command}":
                del self._watched[key]
        self._output_times.set_ranks(ranks)

    def _look(self, watched: _Watched) -> Sample:
        rank, process = watched.rank, watched.process
        now = time.monotonic()
        below = [each for each in map(_below, rank.below) if each]
        every = (_totals(process), *(each for each, _ in below))
        totals = _Totals(*map(sum, zip(*every, strict=True)))
        rates: Sequence[float | None] = (None, None, None)
        if watched.before:
            passed_s = max(now - watched.before[0], 1e-9)
            rates = [
                max(0.0, b - a) / passed_s for a, b in zip(watched.before[1], totals, strict=True)
            ]
        watched.before = now, totals
        mask = _mask(process)
        status = held.status(rank.pid)
        output_at = self._output_times.output_at(rank)
        progress = watched.progress.read()
        return Sample(
            time=time.time(),
            host=self._host,
            launch=rank.launch,
            job=rank.job,
            starter=find.starter_of(rank.environ),
            rank=rank.rank,
            local_rank=rank.local_rank,
            world_size=rank.world_size,
            pid=rank.pid,
            start=rank.start,
            command=watched.command,
            state=process.status(),
            held=held.look(rank.pid, status, may_be_frozen=rates[0] == 0),
            cpu=rates[0],
            cpu_seconds=round(totals.cpu_s, 2),
            cpus=cpuset.format(mask),
            elsewhere=cpuset.format(_elsewhere(watched, mask)),
            memory=process.memory_info().rss,
            peak=int(status["VmHWM"].split()[0]) * 1024 if "VmHWM" in status else None,
            memory_below=sum(memory for _, memory in below),
            threads=int(status["Threads"]) if status else process.num_threads(),
            processes=len(below),
            reads=rates[1],
            writes=rates[2],
            quiet_s=None if output_at is None else max(0.0, round(time.monotonic() - output_at, 2)),
            output_at=output_at,
            device=self._meter.of(rank),
            progress=progress,
        )


def _below(pid: int) -> tuple[_Totals, int] | None:
    """The totals and resident sets of a rank's descendants; None: the rank has ended."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            memory = process.memory_info().rss
            return _totals(process), memory
    except (psutil.Error, OSError):
        return None


def _totals(process: psutil.Process) -> _Totals:
    times = process.cpu_times()
    cpu_s = times.user + times.system + times.children_user + times.children_system
    try:
        io = process.io_counters()
        return _Totals(cpu_s, io.read_chars, io.write_chars)
    except (psutil.AccessDenied, AttributeError):  # of a process that may not be traced; macOS
        return _Totals(cpu_s, 0, 0)


def _mask(process: psutil.Process) -> frozenset[int]:
    try:
        return frozenset(process.cpu_affinity())
    except (AttributeError, psutil.AccessDenied):  # no masks, as on macOS
        return frozenset()


def _elsewhere(watched: _Watched, mask: frozenset[int]) -> frozenset[int]:
    """The last CPUs of threads outside the main thread's mask: some threads at each look."""
    directory = f"{watched.rank.pid}/task"
    if not watched.threads:
        watched.elsewhere, watched.outside = frozenset(watched.outside), set()
        watched.threads = os.listdir(f"/proc/{directory}") if mask else []
    now, watched.threads = watched.threads[:THREADS_AT_ONCE], watched.threads[THREADS_AT_ONCE:]
    for thread in now:
        try:
            cpu = int(proc.stat(f"{directory}/{thread}")[38])  # "processor" in proc(5)
        except OSError:  # it has ended
            continue
        if cpu not in mask:
            watched.outside.add(cpu)
    return watched.elsewhere | watched.outside


def _command(process: psutil.Process) -> str:
    """The command line of a process; for one of multiprocessing, that of the script."""
    try:
        if find.is_spawned(process.pid):
            process = process.parent() or process
        return " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return ""


def by_launch(samples: Sequence[Sample]) -> Mapping[str, list[Sample]]:
    """The samples of each launch, the launch that began last first."""
    launches: dict[str, list[Sample]] = {}
    for sample in samples:
        launches.setdefault(sample.launch, []).append(sample)
    began = {launch: min(rank.start for rank in ranks) for launch, ranks in launches.items()}
    return {name: launches[name] for name in sorted(launches, key=lambda name: -began[name])}
