"""Notes on ranks of a launch that stand out in the samples of some minutes.

    stopped    the rank is frozen, stopped, swapped out, or sleeps so that no signal reaches it
    stuck      no rank has made a step for long; this one is not waiting for the others
    slow       its own part of a step (data and computing) takes longer than the others'
    grows      its memory has grown steadily, and more than that of the others
    elsewhere  a thread of it ran on CPUs outside its mask
    uneven     it uses far more, or less, CPU time than the others (where no steps are known)
    device     its device is far less used than the others', or slower by its clock

A rank that waits in a collective is held up by another, so it is not named: the loop shows its
phase.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median, median_high, median_low

from spawnlaunch.hang.culprits import Note
from spawnlaunch.watch import usage

STUCK_S = 10.0  # without a step, and ten times as long as a step takes
STUCK_STEPS = 10
SLOW = 1.25  # times the median of the ranks
GROWN_BYTES = 64 << 20
GROWN_SHARE = 0.2  # share of the earlier size
GROWN_TIMES = 3.0  # as much as the median of the others
RISING = 0.6  # share of the looks at which there was more than at the one before
UNEVEN = 2.0
LEAST_CORES = 0.05  # cores of the rank that uses the most; with less no rank computes
STILL = 3  # looks in a row; a sleep of that kind is usually short
MOST_SAMPLES = 240  # samples of each rank
LOOKS = 6  # before there is a note on a change over time

History = Mapping[int, Sequence[usage.Sample]]  # by rank, the oldest first


class Histories:
    """The last samples of all launches that live."""

    def __init__(self) -> None:
        self.by_launch: dict[str, dict[int, deque[usage.Sample]]] = {}

    def add(self, samples: Sequence[usage.Sample]) -> None:
        """Add the samples of one look; a rank that has none has ended."""
        before, self.by_launch = self.by_launch, {}
        for launch, ranks in usage.by_launch(samples).items():
            old = before.get(launch, {})
            self.by_launch[launch] = {
                sample.rank: old.get(sample.rank, deque(maxlen=MOST_SAMPLES)) for sample in ranks
            }
            for sample in ranks:
                self.by_launch[launch][sample.rank].append(sample)

    def notes(self) -> dict[str, list[Note]]:
        """The notes on the ranks, by launch."""
        now = time.monotonic()
        return {launch: notes(history, now) for launch, history in self.by_launch.items()}


def merged(*sources: Mapping[str, Sequence[Note]]) -> dict[str, list[Note]]:
    """All notes of each launch; first those on ranks held from outside, which may be the cause."""
    by_launch: dict[str, list[Note]] = {}
    for launch, noted in (item for each in sources for item in each.items()):
        by_launch.setdefault(launch, []).extend(noted)
    return {
        launch: sorted(noted, key=lambda note: note.kind != "stopped")
        for launch, noted in by_launch.items()
    }


def notes(history: History, now: float) -> list[Note]:
    """The notes on a launch; `now` is of the monotonic clock, for the age of steps."""
    last = {rank: samples[-1] for rank, samples in history.items() if samples}
    noted = [*_stopped(history), *_stuck(last, now)]
    stopped = {note.rank for note in noted if note.kind == "stopped"}
    work_s = {
        rank: (sample.progress.data_s or 0.0) + sample.progress.compute_s
        for rank, sample in last.items()
        if sample.progress and sample.progress.compute_s is not None
    }
    noted += slow(work_s) or [note for note in _uneven(history) if note.rank not in stopped]
    noted += _grows(history)
    noted += [
        Note(rank, "elsewhere", f"rank {rank} ran on CPUs {each.elsewhere}, bound to {each.cpus}")
        for rank, each in sorted(last.items())
        if each.elsewhere
    ]
    return [*noted, *_slow_device(last), *_idle_device(history)]


def _stopped(history: History) -> Iterable[Note]:
    for rank, samples in sorted(history.items()):
        last, recent = samples[-1].held, [state.held for state in [*samples][-STILL:]]
        kinds = [state.kind for state in recent if state]
        if last and (last.is_mute or kinds == [last.kind] * STILL):
            yield Note(rank, "stopped", f"rank {rank} is {last.words}")


def _stuck(last: Mapping[int, usage.Sample], now: float) -> Iterable[Note]:
    progress = {rank: each.progress for rank, each in last.items() if each.progress}
    waiting = {rank for rank, each in progress.items() if each.phase == "wait"}
    ages_s = [now - each.at for each in progress.values() if each.at is not None]
    if not ages_s or len(ages_s) < len(progress) or not (waiting or len(progress) == 1):
        return
    parts = ((each.data_s, each.compute_s, each.wait_s) for each in progress.values())
    step_s = max(sum(filter(None, each)) for each in parts)
    if min(ages_s) < max(STUCK_S, STUCK_STEPS * step_s):
        return
    for rank in sorted(progress.keys() - waiting):
        words = f"rank {rank} has made no step for {min(ages_s):.0f} s"
        yield Note(rank, "stuck", f"{words}: in {progress[rank].phase or 'between steps'}")


def slow(work_s: Mapping[int, float]) -> list[Note]:
    """Notes on ranks with an own part of a step longer than the median, by their seconds for it."""
    if len(work_s) < 2:
        return []
    return [
        Note(rank, "slow",
             f"rank {rank} needs {seconds * 1e3:.0f} ms for a step, {ratio:.1f} times the median")
        for rank, seconds in sorted(work_s.items())
        if (ratio := seconds / max(median(work_s.values()), 1e-9)) > SLOW
    ]  # fmt: skip


def _uneven(history: History) -> list[Note]:
    used = {rank: _cores_used(samples) for rank, samples in history.items()}
    known = {rank: cores for rank, cores in used.items() if cores is not None}
    if len(known) < 2 or max(known.values()) < LEAST_CORES:
        return []
    uneven: list[Note] = []
    for rank, cores in sorted(known.items()):
        others = [other for each, other in known.items() if each != rank]
        if cores > UNEVEN * median_high(others) or median_low(others) > UNEVEN * cores:
            words = f"rank {rank} uses {{}} cores, and the others {{}}"
            uneven += _compared(rank, "uneven", words, f"{cores:.2f}", f"{median(others):.2f}")
    return uneven


def _cores_used(samples: Sequence[usage.Sample]) -> float | None:
    """The mean number of cores that this process used; None: there are too few samples."""
    mine = [sample for sample in samples if sample.pid == samples[-1].pid]
    if len(mine) < LOOKS:
        return None
    passed_s = mine[-1].time - mine[0].time
    return (mine[-1].cpu_seconds - mine[0].cpu_seconds) / passed_s if passed_s > 0 else None


def _grows(history: History) -> Iterable[Note]:
    grown = {rank: _growth(samples) for rank, samples in history.items()}
    for rank, (more, before, seconds, steadily) in sorted(grown.items()):
        others = [other for each, (other, *_) in grown.items() if each != rank]
        usual = max(0, median(others)) if others else 0
        if steadily and more > max(GROWN_BYTES, GROWN_SHARE * before, GROWN_TIMES * usual):
            words = f"the memory of rank {rank} grew by {{}} MiB in {seconds:.0f} s"
            words += ", the others' by {}" * bool(others)
            yield from _compared(rank, "grows", words, f"{more >> 20}", f"{int(usual) >> 20}")


def _growth(samples: Sequence[usage.Sample]) -> tuple[int, int, float, bool]:
    """The growth of memory in later samples: bytes, bytes before, seconds, and if it was steady.

    A process takes much memory at its start, and at once.
    """
    mine = [each for each in samples if each.pid == samples[-1].pid]
    later = mine[len(mine) // 3 :]
    if len(later) < LOOKS:
        return 0, 0, 0.0, False
    sizes = [each.memory + each.memory_below for each in later]
    rises = sum(b > a for a, b in pairwise(sizes))
    more, seconds = sizes[-1] - sizes[0], later[-1].time - later[0].time
    return more, sizes[0], seconds, rises >= RISING * (len(sizes) - 1)


def _idle_device(history: History) -> Iterable[Note]:
    """Notes on devices that are used less than others.

    A device that waits in a collective is in use.
    """
    used = {}
    for rank, samples in history.items():
        uses = [each.device.use for each in samples if each.device and each.device.use is not None]
        if len(uses) >= LOOKS:
            used[rank] = fmean(uses)
    for rank, use, usual in _far_below(used, UNEVEN):
        words = f"the device of rank {rank} is used {{}} % of the time, others' {{}} %"
        yield from _compared(rank, "device", words, f"{use:.0f}", f"{usual:.0f}")


def _slow_device(last: Mapping[int, usage.Sample]) -> Iterable[Note]:
    clocks = {rank: each.device.clock for rank, each in last.items() if each.device}
    known = {rank: clock for rank, clock in clocks.items() if clock}
    for rank, clock, usual in _far_below(known, SLOW):
        words = f"the device of rank {rank} runs at {{}} MHz, the others' at {{}}"
        yield from _compared(rank, "device", words, f"{clock:.0f}", f"{usual:.0f}")


def _compared(rank: int, kind: str, words: str, its: str, usual: str) -> Iterable[Note]:
    """A note with two figures as they are shown; none where the reader would see no difference."""
    if its != usual:
        yield Note(rank, kind, words.format(its, usual))


def _far_below(figures: Mapping[int, float], times: float) -> Iterable[tuple[int, float, float]]:
    """The ranks with a figure `times` times below the median, each with both figures."""
    usual = median(figures.values()) if len(figures) > 1 else 0
    return (
        (rank, figure, usual) for rank, figure in sorted(figures.items()) if figure * times < usual
    )
