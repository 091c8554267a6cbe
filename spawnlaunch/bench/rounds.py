"""Run the rounds: in each of them every arm runs once, in an order of the round's own.

All ranks run them in step, and begin each sample together. After every sample the ranks send their
measurements to rank 0, which writes them to the file. An arm that fails is out of the workload, and
the others go on.

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

import torch
import torch.distributed as dist

from spawnlaunch.base import cpuset
from spawnlaunch.bench import (
    agree,
    arms,
    bench_request,
    effort,
    forked_sample,
    rank_group,
    results,
    stats,
    workloads,
)
from spawnlaunch.bench.forked_sample import Sample
from spawnlaunch.bench.rank_on_node import Part, RankOnNode
from spawnlaunch.bench.workloads import COMMAND, Workload, timing
from spawnlaunch.workers import environment
from spawnlaunch.world import host, identity

PROGRESS_CHARS = 60
BUDGET_USED = "the budget was used"
WARMEST = 99  # rounds before the first that the order is drawn from
# CPU seconds that the page and the end of all processes take; and seconds after the budget that a
# rank may be late before it is taken for dead.
END_S, LATE_S = 1.0, 60.0
END_SHARE = 0.25  # of the budget, at most, for them on a machine that others use too
# What a rank has from its launcher, and a launcher that it starts shall not have.
OF_RANKS = (
    *identity.RANKS,
    *identity.MASTER,
    *(environment.MARK, bench_request.BEGAN, "OMP_NUM_THREADS"),
)
PREFIXES_OF_RANKS = ("TORCHELASTIC_", "ROLE_")


class Bench:
    """A bench on this rank. On rank 0 it has the file, if there is one, and the samples so far."""

    def __init__(
        self,
        options: bench_request.BenchRequest,
        here: RankOnNode,
        group: rank_group.RankGroup,
        agreed: agree.Agreed,
    ) -> None:
        self.options, self.here, self.group, self.agreed = options, here, group, agreed
        self.file: results.Recorder | None = None
        measured = results.begun(agreed.result.about["workloads"], agreed.result.arms)
        self.result = agreed.result._replace(measured=measured)
        started = here.environ.get(bench_request.BEGAN, "")
        self._began = float(started) if started else time.monotonic()
        # Others that use the CPUs make the end slower as well.
        slowness = max(1.0, bench_request.age_s() / max(time.process_time(), 0.1))
        end_s = forked_sample.RECHECK_S + END_S * slowness
        self._end_s = min(END_SHARE * options.budget_s, end_s)
        group.until = time.monotonic() + self.remaining_s + LATE_S

    @property
    def remaining_s(self) -> float:
        """Seconds until a running sample is ended."""
        if self.options.rounds:
            return math.inf
        return self.options.budget_s - self._end_s - (time.monotonic() - self._began)

    def measure_all(self) -> None:
        """Measure every workload, as long as there is time."""
        gc.collect()
        gc.freeze()  # the children of this process shall not copy what they never use
        for each in self.result.measured:
            if each.workload.name != COMMAND:
                workloads.measure_of(each.workload.name)  # imported before the first fork
        most = self.options.rounds or stats.MOST_ROUNDS
        turn = self.options.rounds or stats.ENOUGH_ROUNDS
        for first in range(0, most, turn):
            for each in self.result.measured:
                for number in range(first or -self.options.warm_up, min(first + turn, most)):
                    if not self._round(each, number):
                        return self._progress("")
        return self._progress("")

    def _round(self, measured: results.Measured, number: int) -> bool:
        """Run every arm that has not failed, once; return False if the budget is used."""
        options, workload = self.options, measured.workload
        for name in order(self.agreed.names, workload.name, number):
            if self.group.broadcast(name in measured.failed):
                continue
            if self.group.broadcast(self.remaining_s <= 0):
                return False
            stage = "warm-up" if number < 0 else f"round {number + 1}"
            rest = f" of {options.rounds}" if options.rounds else f", {self.remaining_s:.0f} s left"
            self._progress(f"{workload.name}: {stage}{rest}, {name}")
            taken = self._take(workload, name, number)
            if self.group.broadcast(taken is not None and taken.error == BUDGET_USED):
                return False
            if taken is not None and (number >= 0 or taken.error):
                measured.taken.append(taken)
                if self.file:
                    self.file.take(taken)
        return True

    def _take(self, workload: Workload, name: str, number: int) -> results.Taken | None:
        """Take a sample on all ranks; return it on rank 0."""
        mine = self._take_mine(workload, name)
        if mine is not None and mine.error:
            self.group.report_failure()
        everyone: list[Sample | None] = self.group.gather(mine)
        if not everyone:
            return None
        there = [(rank, each) for rank, each in enumerate(everyone) if each is not None]
        arm = next(arm for arm in self.result.arms if arm.name == name)
        efforts = tuple(each.effort for _, each in there)
        hosts = [rank.host for rank in arm.ranks]
        error = failure(workload, self.options.metric, there, is_over=self.remaining_s <= 0)
        return results.Taken(
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

    def _take_mine(self, workload: Workload, arm: str) -> Sample | None:
        """Take this rank's part of a sample, within rank 0's time; None if it has no part."""
        part, key = self.agreed.parts.get(arm), f"sample {self.group.count}"
        until = time.monotonic() + self.group.broadcast(self.remaining_s)

        def is_stopped() -> bool:
            return time.monotonic() > until or self.group.has_failed()

        if workload.name == COMMAND:
            return self._run_command(part, arm, is_stopped)
        if part is None:
            return None
        return forked_sample.of_workload(
            part.binding,
            lambda watch: self._measure(workload, part, key, watch),
            is_stopped,
            self._used_cpus(arm),
        )

    def _used_cpus(self, arm: str) -> cpuset.CpuSet:
        """The CPUs of all ranks of an arm on this node; other processes there disturb them."""
        ranks = next(each.ranks for each in self.agreed.result.arms if each.name == arm)
        here = [rank.cpus for rank in ranks if rank.host == self.here.view.host]
        if not all(here):
            return self.here.view.allowed
        return cpuset.EMPTY.union(*map(cpuset.parse, here))

    def _run_command(
        self, part: Part | None, arm: str, is_stopped: forked_sample.Stopped
    ) -> Sample | None:
        """Take a sample of the command, for which rank 0 holds a free port as MASTER_PORT."""
        reserved = host.hold_free_port() if self.group.rank == 0 else None
        port = self.group.broadcast(reserved.port if reserved else 0)
        try:
            if part is None:
                return None
            words, environ = self.options.command, dict(self.here.environ)
            if part.request.launcher:
                words = arms.launcher_words(arm, int(self.options.nproc or 1), port, words)
                environ = {  # as in a shell: without what a rank has from its launcher
                    name: value
                    for name, value in environ.items()
                    if name not in OF_RANKS and not name.startswith(PREFIXES_OF_RANKS)
                }
                if self.options.omp_threads is not None:
                    environ["OMP_NUM_THREADS"] = str(self.options.omp_threads)
            else:
                environ = _as_a_rank(environ, part, port)
            return forked_sample.of_command(
                words, part.binding, environ, self.options.metric, is_stopped, self._used_cpus(arm)
            )
        finally:
            if reserved:
                reserved.lock.close()

    def _measure(
        self, workload: Workload, part: Part, key: str, watch: effort.Watch
    ) -> dict[str, float]:
        """Measure a bundled workload in the sample's process, which joins those of other ranks."""
        environ = self.here.environ
        os.environ.update(dict(part.request.environ))
        device = self.agreed.device if workload.name in workloads.ON_DEVICES else None
        on_device = device is not None
        rank = timing.Rank(
            rank=part.rank,
            size=part.size,
            local_rank=self.here.view.local_rank,
            local_size=part.local_size,
            threads=part.binding.threads,
            device=torch.device("cpu") if device is None else torch.device("cuda", device),
            seconds=self.options.seconds,
            watch=watch,
            loader_workers=part.loader_workers,
        )
        if on_device:
            torch.cuda.set_device(rank.device)
        if rank.size > 1:
            dist.init_process_group(
                "nccl" if on_device else "gloo",
                store=rank_group.connect(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), key),
                rank=rank.rank,
                world_size=rank.size,
                device_id=rank.device if on_device else None,
            )
        values: dict[str, float] = workloads.measure_of(workload.name)(rank)
        rank.barrier()  # a rank that leaves first would cut the others off
        return values

    def _progress(self, doing: str) -> None:
        """Write a line of progress over the last one; an empty text removes it."""
        if self.group.rank != 0 or not self.options.progress:
            return
        with contextlib.suppress(OSError):  # its reader may be gone
            os.write(2, (f"\r{doing:{PROGRESS_CHARS}}" + ("" if doing else "\r")).encode())


def _as_a_rank(environ: forked_sample.Environ, part: Part, port: int) -> dict[str, str]:
    """The rank's environment, but a port of the sample's own: the bench listens on the rank's."""
    variables = {"MASTER_PORT": port, "OMP_NUM_THREADS": part.binding.threads}
    variables |= {"TORCHELASTIC_USE_AGENT_STORE": False}
    variables |= {"RANK": part.rank, "WORLD_SIZE": part.size, "LOCAL_WORLD_SIZE": part.local_size}
    variables |= {"ROLE_RANK": part.rank, "ROLE_WORLD_SIZE": part.size}
    texts = {name: str(value) for name, value in variables.items()}
    return {**environ, **texts, **dict(part.request.environ)}


def order(names: Sequence[str], workload: str, number: int) -> list[str]:
    """The arms in the order of one round, the same on every rank.

    Each round begins with the arm that ended the one before, and the others are drawn. So each arm
    follows each arm equally often in the mean, itself too: what an arm leaves to the next one, as a
    warm cache or a hot core, is the same for all.
    """
    if len(names) < 2:
        return list(names)
    first, last = (_last(tuple(names), workload, each) for each in (number - 1, number))
    between = [name for name in names if name not in (first, last)]
    random.Random(f"{workload} {number}").shuffle(between)
    return [first, *between, last]


@lru_cache(maxsize=4096)
def _last(names: tuple[str, ...], workload: str, number: int) -> str:
    """The last arm of a round, which is not its first."""
    drawn = random.Random(f"{workload} {number} last")
    before = _last(names, workload, number - 1) if number > -WARMEST else ""
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
