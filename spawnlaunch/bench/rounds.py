"""Run the rounds: in each of them every arm runs once, in an order of the round's own.

All ranks run them in step. After every sample the ranks send their measurements to rank 0, which
writes them to the file. An arm that fails is out of the workload, and the others go on.

Each workload has ENOUGH_ROUNDS in its turn, then as many again, until MOST_ROUNDS or the end of the
budget. So the end of the rounds does not depend on their results.
"""

import contextlib
import gc
import math
import os
import random
import time
from collections.abc import Sequence
from functools import lru_cache

from spawnlaunch.bench import (
    bench_request,
    effort,
    forked_sample,
    launcher_arms,
    results,
    samples_file,
    stats,
    take,
    workloads,
)
from spawnlaunch.bench.workloads import COMMAND, Workload

PROGRESS_CHARS = 60
BUDGET_USED = "the budget was used"
MOST_ROUNDS = 5 * stats.ENOUGH_ROUNDS
WARMEST = 99  # rounds before the first that the order is drawn from
# CPU seconds that the page and the end of all processes take; and seconds after the budget that a
# rank may be late before it is taken for dead.
END_S, LATE_S = 1.0, 60.0
END_SHARE = 0.25  # of the budget, at most, for them on a machine that others use too


class Bench:
    """A bench on this rank. On rank 0 it has the file, if there is one, and the samples so far."""

    def __init__(self, me: take.Participant, file: samples_file.Recorder | None) -> None:
        self.me = me
        self.file = file
        about, arms = me.agreed.result.about, me.agreed.result.arms
        measured = results.begun(about["workloads"], arms)
        self.result = me.agreed.result._replace(measured=measured)
        started = me.here.environ.get(launcher_arms.BEGAN, "")
        self._began = float(started) if started else time.monotonic()
        slowness = max(
            1.0, bench_request.age_s() / max(time.process_time(), 0.1)
        )  # others had the CPUs
        self._end_s = min(
            END_SHARE * me.options.budget_s, forked_sample.LOOK_AGAIN_S + END_S * slowness
        )
        me.group.until = time.monotonic() + self.left_s + LATE_S

    @property
    def left_s(self) -> float:
        """Seconds until a running sample is ended."""
        if self.me.options.rounds:
            return math.inf
        return self.me.options.budget_s - self._end_s - (time.monotonic() - self._began)

    def measure_all(self) -> None:
        """Measure every workload, as long as there is time."""
        gc.collect()
        gc.freeze()  # the children of this process shall not copy what they never use
        for each in self.result.measured:
            if each.workload.name != COMMAND:
                workloads.measure_of(each.workload.name)  # imported before the first fork
        most = self.me.options.rounds or MOST_ROUNDS
        turn = self.me.options.rounds or stats.ENOUGH_ROUNDS
        for first in range(0, most, turn):
            for each in self.result.measured:
                for number in range(first or -self.me.options.warm_up, min(first + turn, most)):
                    if not self._round(each, number):
                        return self._progress("")
        return self._progress("")

    def _round(self, measured: results.Measured, number: int) -> bool:
        """Run every arm that has not failed, once; return False if the budget is used."""
        options, workload = self.me.options, measured.workload
        for name in order(self.me.agreed.names, options.seed, workload.name, number):
            if self.me.group.tell(name in measured.failed):
                continue
            if self.me.group.tell(self.left_s <= 0):
                return False
            what = "warm-up" if number < 0 else f"round {number + 1}"
            left = f" of {options.rounds}" if options.rounds else f", {self.left_s:.0f} s left"
            self._progress(f"{workload.name}: {what}{left}, {name}")
            taken = self._take(workload, name, number)
            if self.me.group.tell(taken is not None and taken.error == BUDGET_USED):
                return False
            if taken is not None and (number >= 0 or taken.error):
                measured.taken.append(taken)
                if self.file:
                    self.file.take(taken)
        return True

    def _take(self, workload: Workload, name: str, number: int) -> samples_file.Taken | None:
        """Take a sample on all ranks; return it on rank 0."""
        mine = take.take(workload, self.me, name, self.left_s)
        if mine is not None and mine.error:
            self.me.group.report_failure()
        everyone: list[forked_sample.Sample | None] = self.me.group.gather(mine)
        if not everyone:
            return None
        there = [(rank, each) for rank, each in enumerate(everyone) if each is not None]
        arm = next(arm for arm in self.result.arms if arm.name == name)
        efforts = tuple(each.effort for _, each in there)
        hosts = [rank.host for rank in arm.ranks]
        error = failure(workload, self.me.options.metric, there, is_over=self.left_s <= 0)
        return samples_file.Taken(
            workload.name,
            number,
            name,
            () if error else tuple(each.values for _, each in there),
            efforts,
            error,
            "" if error else effort.disturbed(list(zip(hosts, efforts, strict=True))),
            steps=() if error else tuple(each.steps or {} for _, each in there),
            at_s=round(time.monotonic() - self._began, 3),
        )

    def _progress(self, doing: str) -> None:
        """Write a line of progress over the last one; an empty text removes it."""
        if self.me.group.rank != 0 or not self.me.options.progress:
            return
        with contextlib.suppress(OSError):  # its reader may be gone
            os.write(2, (f"\r{doing:{PROGRESS_CHARS}}" + ("" if doing else "\r")).encode())


def order(names: Sequence[str], seed: int, workload: str, number: int) -> list[str]:
    """The arms in the order of one round, the same on every rank.

    Each round begins with the arm that ended the one before, and the others are drawn. So each arm
    follows each arm equally often in the mean, itself too: what an arm leaves to the next one, as a
    warm cache or a hot core, is the same for all.
    """
    if len(names) < 2:
        return list(names)
    first, last = (_last(tuple(names), seed, workload, each) for each in (number - 1, number))
    between = [name for name in names if name not in (first, last)]
    random.Random(f"{seed} {workload} {number}").shuffle(between)
    return [first, *between, last]


@lru_cache(maxsize=4096)
def _last(names: tuple[str, ...], seed: int, workload: str, number: int) -> str:
    """The last arm of a round, which is not its first."""
    drawn = random.Random(f"{seed} {workload} {number} last")
    before = _last(names, seed, workload, number - 1) if number > -WARMEST else ""
    return drawn.choice([name for name in names if name != before])


def failure(
    workload: Workload,
    metric: str | None,
    everyone: Sequence[tuple[int, forked_sample.Sample]],
    *,
    is_over: bool = False,
) -> str:
    """The error in the samples of the ranks; "" if there is none."""
    for rank, each in everyone:
        if each.error and each.error != forked_sample.STOPPED:
            return f"{workload.name} on rank {rank}: {each.error.rstrip()}"
    if is_over and any(each.error for _, each in everyone):
        return BUDGET_USED
    for rank, each in everyone:
        for value in each.values.values():
            if not 0 < value < math.inf:
                return f"rank {rank} measured {value:g}; ratios are of numbers above 0 alone"
    if not any(each.values for _, each in everyone):
        return (
            f"no rank printed a JSON line with {metric!r}; print one such as "
            f'{{"{metric}": 1.5}}, or leave --metric out for the wall time'
        )
    return ""
