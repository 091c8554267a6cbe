"""One rank of a bench: meet the others, agree on the arms, walk the rounds; rank 0 tells."""

import gc
import os
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spawnlaunch.bench import arms, command, describe, place, sample, table, workloads
from spawnlaunch.bench.meeting import Meeting, connect, join
from spawnlaunch.bench.options import Options
from spawnlaunch.bench.place import Place
from spawnlaunch.bench.result import Arm, Measured, Result, Samples, write
from spawnlaunch.bench.sample import Sample
from spawnlaunch.bench.workloads import Workload
from spawnlaunch.binding.plan import Binding
from spawnlaunch.errors import UsageError
from spawnlaunch.world.ports import hold_free_port

COMMAND = "command"  # the workload that is the user's own


class FailedError(Exception):
    """A sample could not be taken on some rank; the message says why."""


class Agreed(NamedTuple):
    """What all ranks have agreed on."""

    names: tuple[str, ...]  # the arms that are measured
    seats: Mapping[str, Binding]  # of this rank, by arm
    result: Result  # with nothing measured yet


def run(options: Options, environ: Mapping[str, str]) -> int:
    """Take part; the result is the exit status of every rank."""
    here = place.look(environ)
    meeting = join()
    try:
        agreed = agree(options, here, meeting)
        done = measure_all(options, here, meeting, agreed)
        _finish(options, meeting, done)
    except UsageError as error:
        if meeting.rank == 0:
            _say(f"error: {error}")
        return 2
    except FailedError as error:
        if meeting.rank == 0:
            _say(f"error: {error}")
        return 1
    return 0


def agree(options: Options, here: Place, meeting: Meeting) -> Agreed:
    """The arms that make a difference on some node, and what can be run. Raises UsageError."""
    everyone = meeting.exchange(here.view)
    refusal, planned = "", {}
    try:
        planned = place.seats(here, everyone, options.arms, options.omp_threads)
    except UsageError as error:
        refusal = str(error)
    _refuse_together(meeting, refusal)
    mine = {name: _own(here, seats) for name, seats in planned.items()}
    effects = meeting.exchange(
        {name: _effect(here, planned[name], seat) for name, seat in mine.items()}
    )
    left_out = arms.left_out({name: [each[name] for each in effects] for name in options.arms})
    if options.against in left_out:
        why = left_out[options.against]
        raise UsageError(f"--against {options.against}: {why}; choose another arm")
    names = tuple(name for name in options.arms if name not in left_out)
    seats = {name: seat for name in names if (seat := mine[name]) is not None}
    flags = {name: arms.flag(name, planned[name].bindings) for name in names}
    records = meeting.exchange({name: describe.seat(here, seats[name]) for name in names})
    drawn = meeting.gather(describe.node(here, records, seats))
    result = Result(
        about=describe.about(options),
        nodes=[each for each in drawn if each is not None],
        against=options.against,
        arms=[Arm(name, flags[name], tuple(each[name] for each in records)) for name in names],
        left_out=left_out,
        not_run=_not_run(options, here, meeting, seats[names[0]]),
        measured=[],
    )
    return Agreed(names, seats, result)


def _refuse_together(meeting: Meeting, refusal: str) -> None:
    refusals = [each for each in meeting.exchange(refusal) if each]
    if refusals:
        raise UsageError(refusals[0])


def _own(here: Place, seats: arms.Seats) -> Binding | None:
    """This rank's among the planned seats, which are those of all local ranks or its own alone."""
    found = [seat for seat in seats.bindings if seat.local_rank == here.view.local_rank]
    return found[0] if found else None


def _effect(here: Place, planned: arms.Seats, seat: Binding | None) -> arms.Effect | str:
    if seat is None:
        return planned.missing
    return arms.effect(here.node, seat, here.view.allowed)


def _not_run(options: Options, here: Place, meeting: Meeting, seat: Binding) -> dict[str, str]:
    """The bundled workloads that some rank cannot run, and why."""
    reasons: dict[str, str] = {}

    def ask() -> dict[str, Any]:
        gang = _gang(options, here, seat)
        return {name: workloads.module_of(name).missing(gang) for name in options.workloads}

    if options.workloads:
        asked = sample.measured(seat, ask, meeting.has_failed)
        for each in meeting.exchange(asked):
            if each.error:
                raise FailedError(each.error)
            reasons |= {name: why for name, why in each.values.items() if why}
    return reasons


def measure_all(options: Options, here: Place, meeting: Meeting, agreed: Agreed) -> Result:
    """Every workload, its table printed as soon as it is done."""
    gc.collect()
    gc.freeze()  # the children of this process shall not copy what they never use
    result = agreed.result
    if meeting.rank == 0:
        print("\n".join(table.header(result)), flush=True)
    for workload in _workloads(options):
        if workload.name in result.not_run:
            continue
        rounds = measure(workload, options, here, meeting, agreed)
        if meeting.rank == 0:
            measured = Measured(workload, _by_series(rounds, agreed.names))
            result = result._replace(measured=[*result.measured, measured])
            print("\n".join(table.block(measured, result)), flush=True)
    return result


def _workloads(options: Options) -> list[Workload]:
    if not options.command:
        return [workloads.NAMES[name] for name in options.workloads]
    about = " ".join(options.command)
    if options.metric is None:
        return [Workload(COMMAND, "s", False, about)]
    return [Workload(COMMAND, options.metric, not options.lower_is_better, about)]


Round = dict[str, list[Sample]]  # by arm, the samples of all ranks


def measure(
    workload: Workload, options: Options, here: Place, meeting: Meeting, agreed: Agreed
) -> list[Round]:
    """The rounds that count, on rank 0. Raises FailedError on all ranks together."""
    rounds: list[Round] = []
    for number in range(-options.warm_up, options.rounds):
        taken: Round = {}
        for name in order(agreed.names, options.seed, workload.name, number):
            _progress(meeting, workload, number, options.rounds, name)
            mine = _take(workload, options, here, meeting, agreed.seats[name])
            if mine.error:
                meeting.report_failure()
            taken[name] = meeting.gather(mine)
            failure = meeting.tell(_failure(workload, options, taken[name]))
            if failure:
                raise FailedError(failure)
        if number >= 0:
            rounds.append(taken)
    _progress(meeting, workload, options.rounds, options.rounds, "")
    return rounds


def order(names: Sequence[str], seed: int, workload: str, number: int) -> list[str]:
    """The arms in the order of one round, the same on every rank."""
    shuffled = list(names)
    random.Random(f"{seed} {workload} {number}").shuffle(shuffled)
    return shuffled


def _take(
    workload: Workload, options: Options, here: Place, meeting: Meeting, seat: Binding
) -> Sample:
    held = hold_free_port() if meeting.rank == 0 else None
    port = meeting.tell(held.port if held else 0)  # also the start, on all ranks together
    try:
        if workload.name == COMMAND:
            environ = command.environment(seat, port, here.environ)
            words = options.command
            return command.run(words, seat, environ, options.metric, meeting.has_failed)
        return _bundled(workload, options, here, f"sample {port} {meeting.count}", seat, meeting)
    finally:
        if held:
            held.lock.close()


def _bundled(
    workload: Workload,
    options: Options,
    here: Place,
    key: str,
    seat: Binding,
    meeting: Meeting,
) -> Sample:
    def measure() -> dict[str, float]:
        import torch.distributed as dist

        gang = _gang(options, here, seat)
        if gang.size > 1:
            store = connect(here.environ["MASTER_ADDR"], int(here.environ["MASTER_PORT"]), key)
            backend = "nccl" if gang.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, store=store, rank=gang.rank, world_size=gang.size)
        values: dict[str, float] = workloads.module_of(workload.name).measure(gang)
        gang.barrier()  # who leaves first would cut the others off
        return values

    return sample.measured(seat, measure, meeting.has_failed)


def _gang(options: Options, here: Place, seat: Binding) -> Any:
    """In the child: only there may a driver be asked for devices."""
    import torch

    from spawnlaunch.bench.gang import Gang

    devices = torch.cuda.device_count()
    index = 0 if devices == 1 else here.view.local_rank
    device = torch.device("cuda", index) if index < devices else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    view = here.view
    return Gang(
        view.rank,
        here.size,
        view.local_rank,
        here.local_size,
        seat.threads,
        device,
        options.seconds,
    )


def _failure(workload: Workload, options: Options, everyone: Sequence[Sample]) -> str:
    """What is wrong with the samples of all ranks; empty on the ranks that do not see them."""
    failed = [(rank, each.error) for rank, each in enumerate(everyone) if each.error]
    if failed:
        # Those that were stopped because of another come later, or say less.
        rank, error = max(failed, key=lambda each: (len(each[1]), -each[0]))
        return f"{workload.name} on rank {rank}: {error.rstrip()}"
    if everyone and not any(each.values for each in everyone):
        return (
            f"no rank printed a JSON line with {options.metric!r}; print one such as "
            f'{{"{options.metric}": 1.5}}, or leave --metric out for the wall time'
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


def _progress(meeting: Meeting, workload: Workload, number: int, rounds: int, arm: str) -> None:
    """One line that is written over, for a person alone."""
    if meeting.rank != 0 or not os.isatty(2):
        return
    what = "warm-up" if number < 0 else f"round {number + 1} of {rounds}"
    line = f"{workload.name}: {what}, {arm}" if arm else ""
    sys.stderr.write(f"\r{line:60}\r" if not line else f"\r{line:60}")
    sys.stderr.flush()


def _finish(options: Options, meeting: Meeting, result: Result) -> None:
    if meeting.rank != 0:
        return
    from spawnlaunch.bench.advice import advice

    print(f"\nadvice: {advice(result)}", flush=True)
    if options.json:
        write(result, options.json)
    if options.plot:
        from spawnlaunch.bench.plot import draw

        draw(result, options.plot)


def _say(line: str) -> None:
    print(f"spawnlaunch.bench: {line}", file=sys.stderr, flush=True)
