"""What all ranks agree on before anything is measured: the arms, the seats and what can be run."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spawnlaunch.bench import arms, describe, place, sample, workloads
from spawnlaunch.bench import gang as gangs
from spawnlaunch.bench.gang import Gang
from spawnlaunch.bench.meeting import Meeting
from spawnlaunch.bench.options import Options
from spawnlaunch.bench.place import Place, View
from spawnlaunch.bench.result import Arm, Result, check_writable
from spawnlaunch.bench.sample import FailedError, Sample
from spawnlaunch.binding.plan import Binding
from spawnlaunch.errors import UsageError


class Agreed(NamedTuple):
    """What all ranks have agreed on."""

    names: tuple[str, ...]  # the arms that are measured
    seats: Mapping[str, Binding]  # of this rank, by arm
    device: int | None  # of this rank, for PyTorch; None: the workloads run on the CPU
    result: Result  # with nothing measured yet


def agree(options: Options, here: Place, meeting: Meeting) -> Agreed:
    """The arms that make a difference on some node, and what can be run. Raises UsageError."""
    everyone = meeting.exchange(here.view)
    refusal, planned = "", {}
    try:
        if meeting.rank == 0:  # which writes the files, on its node
            for path in filter(None, (options.json, options.plot)):
                check_writable(path)
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
    any_seat = seats[names[0]]
    device = _device(here, everyone, meeting, any_seat) if options.workloads else None
    result = Result(
        about=describe.about(options, device),
        nodes=[each for each in drawn if each is not None],
        against=options.against,
        arms=[Arm(name, flags[name], tuple(each[name] for each in records)) for name in names],
        left_out=left_out,
        not_run=_not_run(options, gangs.of_rank(here, any_seat, device, options.seconds)),
        measured=[],
    )
    return Agreed(names, seats, device, result)


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


def _device(here: Place, everyone: Sequence[View], meeting: Meeting, seat: Binding) -> int | None:
    """The number of this rank's device; None, for all ranks, where one has none of its own."""
    peers = [view for view in everyone if view.host == here.view.host]
    is_own = [view.devices for view in peers].count(here.view.devices) == 1
    asked = sample.measured(
        seat, lambda: {"device": gangs.device_index(here, is_own)}, meeting.has_failed
    )
    answers = meeting.exchange(asked)
    for each in answers:
        if each.error:
            raise FailedError(each.error)
    return asked.values["device"] if all(_has(each) for each in answers) else None


def _has(asked: Sample) -> bool:
    return asked.values["device"] is not None


def _not_run(options: Options, gang: Gang) -> dict[str, str]:
    """The bundled workloads that cannot run, and why; the same on all ranks."""
    reasons = {name: workloads.module_of(name).missing(gang) for name in options.workloads}
    return {name: why for name, why in reasons.items() if why}
