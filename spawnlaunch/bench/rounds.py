"""The rounds: in each of them every arm runs once, in an order of the round's own.

All ranks walk them in step. What a rank measured goes to rank 0 after every sample, and so does
word of a sample that failed, upon which all of them end.
"""

import contextlib
import gc
import itertools
import os
import random
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from spawnlaunch.bench import sample, stats, table, workloads
from spawnlaunch.bench.advice import advise, print_pick
from spawnlaunch.bench.agree import Agreed, RankOnNode, agree, look
from spawnlaunch.bench.flags import NAME, BenchRequest
from spawnlaunch.bench.rank_group import RankGoneError, RankGroup, connect, join
from spawnlaunch.bench.result import Measured, Result, Samples, headline, rows_of, write
from spawnlaunch.bench.sample import STOPPED, FailedError, Sample
from spawnlaunch.bench.workloads import Workload
from spawnlaunch.bench.workloads.timing import Rank
from spawnlaunch.binding.apply import Binding
from spawnlaunch.errors import UsageError
from spawnlaunch.printing import print_error, print_page
from spawnlaunch.world.host import hold_free_port

PROGRESS_CHARS = 60
COMMAND = "command"  # the workload that is the user's own

Round = dict[str, list[Sample]]  # by arm, the samples of all ranks


class Share(NamedTuple):
    """What a workload has of the bench."""

    workloads: int  # that the probability of a false claim is divided among
    deadline: float  # of the monotonic clock


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
        _print(part.options, table.header(result))
    left = [each for each in _workloads(part.options) if each.name not in result.not_run]
    end = time.monotonic() + part.options.budget_s
    count = len(left)
    while left:
        now = time.monotonic()
        share = Share(count, now + (end - now) / len(left))
        workload = left.pop(0)
        try:
            measured = measure(workload, part, share)
        except FailedError as failure:
            return result, str(failure)
        if tells:
            result = result._replace(measured=[*result.measured, measured])
            _print(part.options, table.block(measured, result))
    return result, ""


def _workloads(options: BenchRequest) -> list[Workload]:
    if not options.command:
        return [workloads.NAMES[name] for name in options.workloads]
    about = " ".join(options.command)
    if options.metric is None:
        return [Workload(COMMAND, "s", False, about)]
    return [Workload(COMMAND, options.metric, not options.lower_is_better, about)]


def measure(workload: Workload, part: Participant, share: Share) -> Measured:
    """The rounds that count, on rank 0. Raises FailedError on all ranks together."""
    if workload.name != COMMAND:
        workloads.measure_of(workload.name)  # imported before the first fork
    measured = Measured(workload, {}, 0.0)
    rounds: list[Round] = []
    for number in itertools.count(-part.options.warm_up):
        began = time.monotonic()
        taken = _round(workload, part, share, number)
        if number < 0:
            continue
        rounds.append(taken)
        if part.group.rank == 0:
            measured = Measured(workload, _by_series(rounds, part.agreed.names), 0.0)
            error = error_of_end(measured, part, share, time.monotonic() - began)
            measured = measured._replace(error=error)
        if part.group.tell(measured.error):
            break
    _progress(part, workload, "")
    return measured


def _round(workload: Workload, part: Participant, share: Share, number: int) -> Round:
    """Every arm once."""
    options, group = part.options, part.group
    taken: Round = {}
    for name in order(part.agreed.names, options.seed, workload.name, number):
        what = "warm-up" if number < 0 else f"round {number + 1}"
        if options.rounds:
            left = f" of {options.rounds}"
        else:
            left = f", at most {table.lasting(max(0, share.deadline - time.monotonic()))} more"
        _progress(part, workload, f"{what}{left}, {name}")
        mine = _take(workload, part, part.agreed.bindings[name])
        if mine.error:
            group.report_failure()
        taken[name] = group.gather(mine)
        failure = group.tell(_failure(workload, options.metric, taken[name]))
        if failure:
            raise FailedError(failure)
    return taken


def error_of_end(measured: Measured, part: Participant, share: Share, round_s: float) -> float:
    """With which error to judge these rounds as the last ones; 0: go on.

    When the budget ends does not depend on who is better, and so the error that no look has had is
    for the last one.
    """
    if part.options.rounds:
        ended = measured.rounds >= part.options.rounds
        return stats.ERROR / share.workloads if ended else 0.0
    is_last = time.monotonic() + round_s > share.deadline or measured.rounds >= stats.LOOKS[-1]
    if not is_last and measured.rounds not in stats.LOOKS:
        return 0.0
    error = stats.error_of_look(measured.rounds, is_last) / share.workloads
    found = headline(rows_of(measured._replace(error=error), part.agreed.result))
    is_decided = all(row.comparison.verdict != stats.UNDECIDED for row in found)
    return error if is_last or is_decided else 0.0


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


def _progress(part: Participant, workload: Workload, doing: str) -> None:
    """One line that is written over; without what is done it is taken away."""
    if part.group.rank != 0 or not part.options.progress:
        return
    line = f"{workload.name}: {doing}" if doing else ""
    with contextlib.suppress(OSError):  # nobody may read it
        os.write(2, (f"\r{line:{PROGRESS_CHARS}}" + ("" if doing else "\r")).encode())


class OutputError(Exception):
    """Nothing can be printed any more, and stderr has been told; the other ranks do not know."""


def _print(options: BenchRequest, lines: Iterable[str]) -> None:
    """A part of the page; where only flags may be on stdout, on stderr."""
    text = "\n".join(lines)
    if options.pick:
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode())
    elif print_page(text, NAME):
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
        if group.rank == 0 and (done.measured or not error):
            status = _finish(options, done, error) or status
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
            NAME,
            "internal error",
        )
        return os.EX_SOFTWARE
    if error and group.rank == 0:
        print_error(error, NAME)
    with contextlib.suppress(RankGoneError):  # who is gone need not be waited for
        group.leave()
    return status


def _finish(options: BenchRequest, result: Result, error: str) -> int:
    """The files first: whoever reads the page may stop before its end. The exit status."""
    found, refusal = advise(result, options.chosen), ""
    try:
        if options.json:
            write(result, options.json, advice=found._asdict())
        if options.plot:
            from spawnlaunch.bench.plot import draw

            draw(result, options.plot)
    except UsageError as unwritable:
        refusal = str(unwritable)
    if not options.pick:
        _print(options, table.end(result, options.chosen))
    if refusal:
        raise UsageError(refusal)
    return print_pick(found) if options.pick and not error else 0
