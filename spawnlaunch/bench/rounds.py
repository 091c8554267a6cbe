"""The rounds: in each of them every arm runs once, in an order of the round's own.

All ranks walk them in step. What a rank measured goes to rank 0 after every sample, and so does
word of a sample that failed, upon which all of them end.
"""

import gc
import random
import sys
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from spawnlaunch.bench import command, sample, table, workloads
from spawnlaunch.bench import gang as gangs
from spawnlaunch.bench.agree import Agreed
from spawnlaunch.bench.meeting import Meeting, connect
from spawnlaunch.bench.options import Options
from spawnlaunch.bench.place import Place
from spawnlaunch.bench.result import Measured, Result, Samples
from spawnlaunch.bench.sample import STOPPED, FailedError, Sample
from spawnlaunch.bench.workloads import Workload
from spawnlaunch.binding.plan import Binding
from spawnlaunch.world.ports import hold_free_port

PROGRESS_CHARS = 60
COMMAND = "command"  # the workload that is the user's own

Round = dict[str, list[Sample]]  # by arm, the samples of all ranks


class Part(NamedTuple):
    """What this rank takes part with."""

    options: Options
    here: Place
    meeting: Meeting
    agreed: Agreed


def measure_all(part: Part) -> tuple[Result, str]:
    """Every workload, its table printed as soon as it is done, and what ended it early if it was.

    The result has the workloads before the one that failed, on rank 0.
    """
    gc.collect()
    gc.freeze()  # the children of this process shall not copy what they never use
    result, tells = part.agreed.result, part.meeting.rank == 0
    if tells:
        print("\n".join(table.header(result)), flush=True)
    for workload in _workloads(part.options):
        if workload.name in result.not_run:
            continue
        try:
            rounds = measure(workload, part)
        except FailedError as failure:
            return result, str(failure)
        if tells:
            measured = Measured(workload, _by_series(rounds, part.agreed.names))
            result = result._replace(measured=[*result.measured, measured])
            print("\n".join(table.block(measured, result)), flush=True)
    return result, ""


def _workloads(options: Options) -> list[Workload]:
    if not options.command:
        return [workloads.NAMES[name] for name in options.workloads]
    about = " ".join(options.command)
    if options.metric is None:
        return [Workload(COMMAND, "s", False, about)]
    return [Workload(COMMAND, options.metric, not options.lower_is_better, about)]


def measure(workload: Workload, part: Part) -> list[Round]:
    """The rounds that count, on rank 0. Raises FailedError on all ranks together."""
    options, meeting, names = part.options, part.meeting, part.agreed.names
    rounds: list[Round] = []
    for number in range(-options.warm_up, options.rounds):
        taken: Round = {}
        for name in order(names, options.seed, workload.name, number):
            _progress(part, workload, number, name)
            mine = _take(workload, part, part.agreed.seats[name])
            if mine.error:
                meeting.report_failure()
            taken[name] = meeting.gather(mine)
            failure = meeting.tell(_failure(workload, options.metric, taken[name]))
            if failure:
                raise FailedError(failure)
        if number >= 0:
            rounds.append(taken)
    _progress(part, workload, options.rounds, "")
    return rounds


def order(names: Sequence[str], seed: int, workload: str, number: int) -> list[str]:
    """The arms in the order of one round, the same on every rank."""
    shuffled = list(names)
    random.Random(f"{seed} {workload} {number}").shuffle(shuffled)
    return shuffled


def _take(workload: Workload, part: Part, seat: Binding) -> Sample:
    """This rank's part of a sample, which all ranks begin together."""
    meeting, environ = part.meeting, part.here.environ
    if workload.name != COMMAND:
        key = f"sample {meeting.count}"
        meeting.tell(None)
        return sample.measured(
            seat, lambda: _bundled(workload, part, seat, key), meeting.has_failed
        )
    held = hold_free_port() if meeting.rank == 0 else None
    port = meeting.tell(held.port if held else 0)
    options = part.options
    mine = command.run(
        options.command,
        seat,
        command.environment(seat, port, environ),
        options.metric,
        meeting.has_failed,
    )
    if held:
        held.lock.close()
    return mine


def _bundled(workload: Workload, part: Part, seat: Binding, key: str) -> dict[str, float]:
    """In the process of the sample: meet the other ranks' for this sample alone, and measure."""
    environ = part.here.environ
    device = part.agreed.device if workload.name in workloads.ON_DEVICES else None
    gang = gangs.of_rank(part.here, seat, device, part.options.seconds)
    on_device = gang.device.type == "cuda"
    if on_device:
        torch.cuda.set_device(gang.device)
    if gang.size > 1:
        dist.init_process_group(
            "nccl" if on_device else "gloo",
            store=connect(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), key),
            rank=gang.rank,
            world_size=gang.size,
            device_id=gang.device if on_device else None,
        )
    values: dict[str, float] = workloads.module_of(workload.name).measure(gang)
    gang.barrier()  # who leaves first would cut the others off
    return values


def _failure(workload: Workload, metric: str | None, everyone: Sequence[Sample]) -> str:
    """What is wrong with the samples of all ranks; empty on the ranks that do not see them."""
    for rank, each in enumerate(everyone):
        if each.error and each.error != STOPPED:
            return f"{workload.name} on rank {rank}: {each.error.rstrip()}"
    for rank, each in enumerate(everyone):
        for value in each.values.values():
            if value <= 0:
                return f"rank {rank} measured {value:g}; ratios are of numbers above 0 alone"
    if everyone and not any(each.values for each in everyone):
        return (
            f"no rank printed a JSON line with {metric!r}; print one such as "
            f'{{"{metric}": 1.5}}, or leave --metric out for the wall time'
        )
    return ""


def _by_series(rounds: Sequence[Round], names: Sequence[str]) -> dict[str, Samples]:
    first = [each for ranks in rounds[0].values() for each in ranks]
    series = dict.fromkeys(name for each in first for name in each.values)
    return {
        one: {
            name: [[each.values.get(one) for each in taken[name]] for taken in rounds]
            for name in names
        }
        for one in series
    }


def _progress(part: Part, workload: Workload, number: int, arm: str) -> None:
    """One line that is written over; without an arm it is taken away."""
    if part.meeting.rank != 0 or not part.options.progress:
        return
    what = "warm-up" if number < 0 else f"round {number + 1} of {part.options.rounds}"
    line = f"{workload.name}: {what}, {arm}" if arm else ""
    sys.stderr.write(f"\r{line:{PROGRESS_CHARS}}" + ("" if arm else "\r"))
    sys.stderr.flush()
