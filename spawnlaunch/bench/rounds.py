"""The rounds: in each of them every arm runs once, in an order of the round's own.

All ranks walk them in step. What a rank measured goes to rank 0 after every sample, and so does
word of a sample that failed, upon which all of them end.
"""

import contextlib
import gc
import os
import random
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from spawnlaunch.bench import sample, table, workloads
from spawnlaunch.bench.advice import advice
from spawnlaunch.bench.agree import Agreed, RankOnNode, agree, look
from spawnlaunch.bench.flags import NAME, BenchRequest
from spawnlaunch.bench.rank_group import RankGoneError, RankGroup, connect, join
from spawnlaunch.bench.result import Measured, Result, Samples, write
from spawnlaunch.bench.sample import STOPPED, FailedError, Sample
from spawnlaunch.bench.workloads import Workload
from spawnlaunch.bench.workloads.timing import Rank
from spawnlaunch.binding.plan import Binding
from spawnlaunch.errors import UsageError
from spawnlaunch.printing import print_error, print_page
from spawnlaunch.world.host import hold_free_port

PROGRESS_CHARS = 60
COMMAND = "command"  # the workload that is the user's own

Round = dict[str, list[Sample]]  # by arm, the samples of all ranks


class Participant(NamedTuple):
    """What this rank takes part with."""

    options: BenchRequest
    here: RankOnNode
    group: RankGroup
    agreed: Agreed


def measure_all(part: Participant) -> tuple[Result, str]:
    """Every workload, its table printed as soon as it is done, and what ended it early if it was.

    The result has the workloads before the one that failed, on rank 0.
    """
    gc.collect()
    gc.freeze()  # the children of this process shall not copy what they never use
    result, tells = part.agreed.result, part.group.rank == 0
    if tells:
        _print(table.header(result))
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
            _print(table.block(measured, result))
    return result, ""


def _workloads(options: BenchRequest) -> list[Workload]:
    if not options.command:
        return [workloads.NAMES[name] for name in options.workloads]
    about = " ".join(options.command)
    if options.metric is None:
        return [Workload(COMMAND, "s", False, about)]
    return [Workload(COMMAND, options.metric, not options.lower_is_better, about)]


def measure(workload: Workload, part: Participant) -> list[Round]:
    """The rounds that count, on rank 0. Raises FailedError on all ranks together."""
    options, group, names = part.options, part.group, part.agreed.names
    if workload.name != COMMAND:
        workloads.measure_of(workload.name)  # imported before the first fork
    rounds: list[Round] = []
    for number in range(-options.warm_up, options.rounds):
        taken: Round = {}
        for name in order(names, options.seed, workload.name, number):
            _progress(part, workload, number, name)
            mine = _take(workload, part, part.agreed.bindings[name])
            if mine.error:
                group.report_failure()
            taken[name] = group.gather(mine)
            failure = group.tell(_failure(workload, options.metric, taken[name]))
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


def _take(workload: Workload, part: Participant, binding: Binding) -> Sample:
    """This rank's part of a sample, which all ranks begin together."""
    group, environ = part.group, part.here.environ
    if workload.name != COMMAND:
        key = f"sample {group.count}"
        group.tell(None)
        return sample.of_workload(
            binding, lambda: _bundled(workload, part, binding, key), group.has_failed
        )
    held = hold_free_port() if group.rank == 0 else None
    port = group.tell(held.port if held else 0)
    options = part.options
    mine = sample.of_command(
        options.command,
        binding,
        sample.command_environment(binding, port, environ),
        options.metric,
        group.has_failed,
    )
    if held:
        held.lock.close()
    return mine


def _bundled(workload: Workload, part: Participant, binding: Binding, key: str) -> dict[str, float]:
    """In the process of the sample: meet the other ranks' for this sample alone, and measure."""
    environ = part.here.environ
    device = part.agreed.device if workload.name in workloads.ON_DEVICES else None
    rank = Rank(
        rank=part.here.view.rank,
        size=part.here.size,
        local_rank=part.here.view.local_rank,
        local_size=part.here.local_size,
        threads=binding.threads,
        device=torch.device("cpu") if device is None else torch.device("cuda", device),
        seconds=part.options.seconds,
    )
    on_device = device is not None
    if on_device:
        torch.cuda.set_device(rank.device)
    if rank.size > 1:
        dist.init_process_group(
            "nccl" if on_device else "gloo",
            store=connect(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), key),
            rank=rank.rank,
            world_size=rank.size,
            device_id=rank.device if on_device else None,
        )
    values: dict[str, float] = workloads.measure_of(workload.name)(rank)
    rank.barrier()  # who leaves first would cut the others off
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


def _progress(part: Participant, workload: Workload, number: int, arm: str) -> None:
    """One line that is written over; without an arm it is taken away."""
    if part.group.rank != 0 or not part.options.progress:
        return
    what = "warm-up" if number < 0 else f"round {number + 1} of {part.options.rounds}"
    line = f"{workload.name}: {what}, {arm}" if arm else ""
    with contextlib.suppress(OSError):  # nobody may read it
        os.write(2, (f"\r{line:{PROGRESS_CHARS}}" + ("" if arm else "\r")).encode())


class OutputError(Exception):
    """Nothing can be printed any more, and stderr has been told; the other ranks do not know."""


def _print(lines: Iterable[str]) -> None:
    if print_page("\n".join(lines), NAME):
        raise OutputError


def run(options: BenchRequest, environ: Mapping[str, str]) -> int:
    """Take part; the result is the exit status of every rank."""
    for signum in (signal.SIGINT, signal.SIGPIPE):  # Ctrl-C, `| head`: no traceback of every rank
        signal.signal(signum, signal.SIG_DFL)
    here = look(environ)
    group = join()
    try:
        agreed = agree(options, here, group)
        done, error = measure_all(Participant(options, here, group, agreed))
        status = 1 if error else 0
        if done.measured:
            _finish(options, done)
    except UsageError as refusal:
        status, error = 2, str(refusal)
    except FailedError as failure:
        status, error = 1, str(failure)
    except RankGoneError:
        return 1
    except OutputError:
        group.report_death()
        return os.EX_IOERR
    except Exception as fault:
        group.report_death()
        if environ.get("SPAWNLAUNCH_DEBUG"):
            raise
        print_error(
            f"on rank {group.rank}: {type(fault).__name__}: {fault}; this is a fault of "
            "spawnlaunch, set SPAWNLAUNCH_DEBUG=1 to see where",
            f"{NAME}: internal",
        )
        return os.EX_SOFTWARE
    if error and group.rank == 0:
        print_error(error, NAME)
    with contextlib.suppress(RankGoneError):  # who is gone need not be waited for
        group.leave()
    return status


def _finish(options: BenchRequest, result: Result) -> None:
    """The files first: whoever reads the page may stop before its end."""
    if options.json:
        write(result, options.json)
    if options.plot:
        from spawnlaunch.bench.plot import draw

        draw(result, options.plot)
    _print(["", f"advice: {advice(result)}"])
