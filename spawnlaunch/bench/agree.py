"""What all ranks agree on before anything is measured: the arms, the seats and what can be run."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from spawnlaunch.bench import arms, describe, place, sample, workloads
from spawnlaunch.bench import gang as gangs
from spawnlaunch.bench.meeting import Meeting
from spawnlaunch.bench.options import Options
from spawnlaunch.bench.place import Place
from spawnlaunch.bench.result import Arm, Result
from spawnlaunch.bench.sample import FailedError
from spawnlaunch.binding.plan import Binding
from spawnlaunch.errors import UsageError


class Agreed(NamedTuple):
    """What all ranks have agreed on."""

    names: tuple[str, ...]  # the arms that are measured
    seats: Mapping[str, Binding]  # of this rank, by arm
    result: Result  # with nothing measured yet


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
        gang = gangs.of_rank(here, seat, options.seconds)
        return {name: workloads.module_of(name).missing(gang) for name in options.workloads}

    if options.workloads:
        asked = sample.measured(seat, ask, meeting.has_failed)
        for each in meeting.exchange(asked):
            if each.error:
                raise FailedError(each.error)
            reasons |= {name: why for name, why in each.values.items() if why}
    return reasons
