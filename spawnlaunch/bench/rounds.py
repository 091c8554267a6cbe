"""The rounds: in each of them every arm runs once, in an order of the round's own.

All ranks walk them in step. What a rank measured goes to rank 0 after every sample, and from there
to the file. An arm that fails is out of the workload, and the others go on. A sample that was
disturbed is taken again, twice at most, and as long as few are: where most are disturbed, that is
what the machine is like.
"""

import contextlib
import gc
import itertools
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from spawnlaunch.bench import (
    advice,
    budget,
    effort,
    flags,
    launchers,
    record,
    results,
    sample,
    stats,
    table,
    take,
    workloads,
)
from spawnlaunch.bench.workloads import COMMAND, Workload

PROGRESS_CHARS = 60
BUDGET_USED = "the budget was used"
TOO_LITTLE = "what was left of the budget was too little to tell anything"
TIMES_AGAIN = 2  # that a disturbed sample is taken again
SHARE_AGAIN = 8  # one of so many samples at most
WARMEST = 99  # rounds before the first that the order is drawn from
# Of a CPU, that the last table, the advice and the end of all processes take; and behind the
# budget, that a rank may be late before it is taken for dead.
END_S, LATE_S = 1.0, 60.0
END_SHARE = 0.25  # of the budget, at most, for them on a machine that others use too
WITHOUT_COUNT = 3  # taken again whatever the share

Print = Callable[[Iterable[str]], None]


class Share(NamedTuple):
    """What a workload has of the bench."""

    workloads: int  # that the probability of a false claim is divided among
    deadline: float  # of the bench's clock


class Begun(NamedTuple):
    """A workload that is to be measured."""

    measured: results.Measured
    took_s: list[float]  # its first rounds, those that warm up among them
    known: int  # rounds that a file has


class Bench:
    """A bench on this rank. On rank 0 it has the file, and what was measured so far."""

    def __init__(
        self, me: take.Participant, file: record.Recorder | None, before: results.Result | None
    ) -> None:
        self.me = me
        self.file = file
        self.result = me.agreed.result
        known = before.measured if before else []
        self.before = {each.workload.name: each for each in known}
        done_s = max((taken.at_s for each in known for taken in each.taken), default=0.0)
        started = me.here.environ.get(launchers.BEGAN, "")
        began = float(started) if started and not before else time.monotonic()
        self._began = began - done_s
        slowness = max(1.0, flags.age_s() / max(time.process_time(), 0.1))  # others had the CPUs
        self._end_s = min(END_SHARE * me.options.budget_s, sample.LOOK_AGAIN_S + END_S * slowness)
        me.group.until = time.monotonic() + self.left_s + LATE_S

    @property
    def now(self) -> float:
        """Seconds that the bench has taken, without the time before it was resumed."""
        return time.monotonic() - self._began

    @property
    def left_s(self) -> float:
        """Seconds until samples are ended where they are."""
        if self.me.options.rounds:
            return math.inf
        return self.me.options.budget_s - self._end_s - self.now

    def measure_all(self, tell: Print) -> None:
        """Every workload, its table told as soon as it is done, on rank 0."""
        gc.collect()
        gc.freeze()  # the children of this process shall not copy what they never use
        left = [self._begin(Workload(**each)) for each in self.result.about["workloads"]]
        count = len(left)
        if not self.me.options.rounds:
            self._try(left)
            if self.me.group.rank == 0:
                self._plan(left, count, tell)
        while left and not self.me.group.tell(self.left_s <= 0):
            which, deadline = self.me.group.tell(self._next(left, count))
            if which is None:
                break
            measured = self._measure(left.pop(which), Share(count, deadline))
            if self.me.group.rank == 0:
                ranks, why = self.me.options.ranks, self.me.options.why
                tell(table.block(measured, self.result, ranks=ranks, with_costs=why))
        if left:
            self._leave_out([each.measured.workload.name for each in left], tell)

    def _begin(self, workload: Workload) -> Begun:
        """With the samples that a file has, on rank 0; on every rank, whether it is done."""
        names = self.me.agreed.names
        known = self.before.get(workload.name) or results.Measured(workload, names, [], 0.0, False)
        is_ended = known.is_ended and not goes_on(known, self.me.options)
        error = known.error if is_ended else 0.0
        known = known._replace(taken=[*known.taken], error=error, is_ended=is_ended)
        found = self.me.group.tell(known)
        if workload.name != COMMAND and not found.is_ended:
            workloads.measure_of(workload.name)  # imported before the first fork
        return Begun(found, [], found.rounds)

    def _try(self, begun: Sequence[Begun]) -> None:
        """The first rounds of each workload, as long as little of the budget is used.

        One that is slow takes no more of that than its part.
        """
        until = self.now + budget.TRIAL_SHARE * self.left_s
        by_weight = sorted(begun, key=lambda each: -self._weight(begun, each))
        warm_up = self.me.options.warm_up
        for each in by_weight * (warm_up + budget.TRIAL):
            most_s = (until - self.now) / len(by_weight)
            is_slow = bool(each.took_s) and each.took_s[-1] > most_s
            if each.measured.is_ended or self.me.group.tell(is_slow):
                continue
            if self.me.group.tell(self.now > until):
                return
            began, number = self.now, len(each.took_s) - warm_up
            if not self._round(each.measured, until, number + each.known * (number >= 0)):
                return
            each.took_s.append(self.now - began)

    def _weight(self, begun: Sequence[Begun], its: Begun) -> float:
        names = [each.measured.workload.name for each in begun]
        return advice.weights(names, self.me.options.chosen).get(its.measured.workload.name, 0)

    def _costs(self, begun: Sequence[Begun], count: int) -> list[budget.Cost]:
        claims = count * len(results.pairs(self.me.agreed.names, self.result.against))
        return [
            budget.cost(each.measured, each.took_s, self._weight(begun, each), claims)
            for each in begun
        ]

    def _plan(self, begun: Sequence[Begun], count: int, tell: Print) -> None:
        """What the budget can decide; the file has it too."""
        open_ones = [each for each in begun if not each.measured.is_ended]
        if open_ones:
            costs = self._costs(open_ones, count)
            said = list(budget.lines(costs, self.left_s, self.me.options.budget_s))
            tell(said)
            if self.file:
                self.file.write(record.PLANNED, {"lines": said})

    def _next(self, begun: Sequence[Begun], count: int) -> tuple[int | None, float]:
        """Which workload is measured now, and until when; None: the time is not enough for any."""
        done = [i for i, each in enumerate(begun) if each.measured.is_ended]
        if done or self.me.options.rounds or self.me.group.rank:
            return (done or [0])[0], math.inf
        costs = self._costs(begun, count)
        has_some = any(each.rounds for each in self.result.measured)
        chosen = budget.kept(costs, self.left_s, least=0 if has_some else 1)
        if not chosen:
            return None, 0.0
        return costs.index(chosen[0]), self.now + budget.shares_s(chosen, self.left_s)[0]

    def _leave_out(self, names: Sequence[str], tell: Print) -> None:
        """The budget was not enough for them."""
        why = dict.fromkeys(names, BUDGET_USED if self.left_s <= 0 else TOO_LITTLE)
        self.result = self.result._replace(not_run={**self.result.not_run, **why})
        if self.file:
            self.file.write(record.LEFT_OUT, why)
        if self.me.group.rank == 0:
            tell(f"{name} left out: {reason}" for name, reason in why.items())

    def _measure(self, begun: Begun, share: Share) -> results.Measured:
        """The rounds of a workload; those that a file has already are not taken."""
        found = begun.measured
        self.result = self.result._replace(measured=[*self.result.measured, found])
        if found.is_ended:
            return found
        first = len(begun.took_s) - self.me.options.warm_up
        found = found._replace(error=self._rounds(found, share, first))
        if not found.error:
            last = stats.error_of_look(found.rounds, True) / share.workloads
            found = found._replace(error=self.me.group.tell(last))
        found = found._replace(is_ended=True)
        self.result = self.result._replace(measured=[*self.result.measured[:-1], found])
        if self.file:
            self.file.write(record.ENDED, results.end_of(found))
        self._progress(found.workload, "")
        return found

    def _rounds(self, found: results.Measured, share: Share, first: int) -> float:
        """Take them; the result is with which error to judge them, 0 where they were cut short."""
        last_known = max((each.round for each in found.taken), default=-1)
        for number in itertools.count(first):
            began = self.now
            if not self._round(found, share.deadline, number):
                return 0.0
            if number < 0:
                if not self.me.group.tell(found.there):
                    return 0.0
                continue
            error = 0.0
            if self.me.group.rank == 0 and (number >= last_known or number + 1 in stats.LOOKS):
                error = self._error_of_end(found, share, self.now - began, number < last_known)
            if error := self.me.group.tell(error):
                return float(error)
        raise AssertionError("rounds have no end")

    def _round(self, measured: results.Measured, deadline: float, number: int) -> bool:
        """Every arm that has not failed once, unless a file has it. False: the budget is used."""
        options, workload = self.me.options, measured.workload
        for name in order(self.me.agreed.names, options.seed, workload.name, number):
            if self.me.group.tell(_is_known(measured, name, number)):
                continue
            what = "warm-up" if number < 0 else f"round {number + 1}"
            more = "" if options.rounds else table.lasting(max(0, deadline - self.now))
            left = f", at most {more} more" if more else f" of {options.rounds}"
            self._progress(workload, f"{what}{left}, {name}")
            for times in range(TIMES_AGAIN + 1):
                taken = self._take(workload, name, number)
                if self.me.group.tell(taken is not None and taken.error == BUDGET_USED):
                    return False
                counts = self.me.group.tell(
                    taken is None or not taken.mark or not _again(measured.taken, times)
                )
                if taken is not None and (number >= 0 or taken.error):
                    taken = taken._replace(counts=counts)
                    measured.taken.append(taken)
                    if self.file:
                        self.file.take(taken)
                if counts:
                    break
        return True

    def _take(self, workload: Workload, name: str, number: int) -> record.Taken | None:
        """A sample of all ranks, on rank 0."""
        mine = take.take(workload, self.me, name, self.left_s)
        if mine is not None and mine.error:
            self.me.group.report_failure()
        everyone: list[sample.Sample | None] = self.me.group.gather(mine)
        if not everyone:
            return None
        there = [(rank, each) for rank, each in enumerate(everyone) if each is not None]
        arm = next(arm for arm in self.result.arms if arm.name == name)
        efforts = tuple(each.effort for _, each in there)
        hosts = [rank.host for rank in arm.ranks]
        error = failure(workload, self.me.options.metric, there, is_over=self.left_s <= 0)
        return record.Taken(
            workload.name,
            number,
            name,
            () if error else tuple(each.values for _, each in there),
            efforts,
            error,
            "" if error else effort.disturbed(list(zip(hosts, efforts, strict=True))),
            steps=() if error else tuple(each.steps or {} for _, each in there),
            at_s=round(self.now, 3),
        )

    def _error_of_end(
        self, measured: results.Measured, share: Share, round_s: float, has_more: bool
    ) -> float:
        """With which error to judge these rounds as the last ones; 0: go on.

        When the budget ends does not depend on who is better, and so the error that no look has had
        is for the last one. `has_more` rounds are in the file: this one was not the last.
        """
        options = self.me.options
        if not measured.there:
            return stats.ERROR / share.workloads
        if options.rounds:
            ended = measured.rounds >= options.rounds
            return stats.ERROR / share.workloads if ended else 0.0
        is_over = self.now + round_s > share.deadline and not has_more
        return error_of_end(measured, self.result.against, share.workloads, is_over)

    def _progress(self, workload: Workload, doing: str) -> None:
        """One line that is written over; without what is done it is taken away."""
        if self.me.group.rank != 0 or not self.me.options.progress:
            return
        line = f"{workload.name}: {doing}" if doing else ""
        with contextlib.suppress(OSError):  # nobody may read it
            os.write(2, (f"\r{line:{PROGRESS_CHARS}}" + ("" if doing else "\r")).encode())


def goes_on(known: results.Measured, options: flags.BenchRequest) -> bool:
    """Whether a workload that has ended has more rounds by what is typed beside --resume."""
    if not options.longer:
        return False
    if options.rounds:
        return known.rounds < options.rounds
    compared = results.headline(results.rows_of(known, options.against))
    is_open = any(row.comparison.verdict == stats.UNDECIDED for row in compared)
    return is_open and known.rounds < stats.LOOKS[-1]


def error_of_end(measured: results.Measured, against: str, workloads: int, is_over: bool) -> float:
    """With which error to judge these rounds as the last ones, of so many workloads; 0: go on."""
    is_last = is_over or measured.rounds >= stats.LOOKS[-1]
    if not is_last and measured.rounds not in stats.LOOKS:
        return 0.0
    error = stats.error_of_look(measured.rounds, is_last) / workloads
    found = results.headline(results.rows_of(measured._replace(error=error), against))
    is_decided = all(row.comparison.verdict != stats.UNDECIDED for row in found)
    return error if is_last or is_decided else 0.0


def order(names: Sequence[str], seed: int, workload: str, number: int) -> list[str]:
    """The arms in the order of one round, the same on every rank.

    Each round begins with the arm that ended the one before, and the others are drawn. So each arm
    follows each arm equally often in the mean, itself too: what an arm leaves to whoever follows
    it, as a warm cache or a hot core, is the same for all.
    """
    if len(names) < 2:
        return list(names)
    first, last = (_last(tuple(names), seed, workload, each) for each in (number - 1, number))
    between = [name for name in names if name not in (first, last)]
    random.Random(f"{seed} {workload} {number}").shuffle(between)
    return [first, *between, last]


@lru_cache(maxsize=4096)
def _last(names: tuple[str, ...], seed: int, workload: str, number: int) -> str:
    """The last arm of a round, another than its first."""
    drawn = random.Random(f"{seed} {workload} {number} last")
    before = _last(names, seed, workload, number - 1) if number > -WARMEST else ""
    return drawn.choice([name for name in names if name != before])


def _is_known(measured: results.Measured, name: str, number: int) -> bool:
    """Whether nothing is to be taken: there is a sample, or the arm has failed."""
    cells = {(each.round, each.arm) for each in measured.taken if each.counts}
    return name in measured.failed or (number, name) in cells


def _again(taken: Sequence[record.Taken], times: int) -> bool:
    """Whether a disturbed sample is taken again, after so many times that it was."""
    so_far = sum(1 for each in taken if not each.counts)
    return times < TIMES_AGAIN and so_far < WITHOUT_COUNT + len(taken) // SHARE_AGAIN


def failure(
    workload: Workload,
    metric: str | None,
    everyone: Sequence[tuple[int, sample.Sample]],
    *,
    is_over: bool = False,
) -> str:
    """What is wrong with the samples of the ranks; "" for nothing."""
    for rank, each in everyone:
        if each.error and each.error != sample.STOPPED:
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
