"""A training of several ranks as their answers tell it: who comes when to which collective."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from spawnlaunch.hang import asked, flight

BEGAN = 1_795_000_000 * 10**9  # nanoseconds since 1970
MS = 10**6
WORK, SLOW, WAIT = 10, 31, 88  # lines

# How much longer than usual a rank works in a step: as a share of that.
Noise = Callable[[Random], float]


class Training(NamedTuple):
    """What differs from run to run."""

    size: int = 4
    steps: int = 100
    step_ns: int = 100 * MS
    late: Mapping[int, float] = {}  # what share of each step the others wait for a rank
    once: Mapping[int, float] = {}  # in the middle: for so many steps
    noise: Noise = lambda _: 0.0
    groups: Mapping[str, Sequence[int]] = {}  # which meet in each step, before all do
    look_ns: int = 30 * MS
    has_world: bool = True  # all ranks meet in each step


def answers(of: Training, seed: int = 0) -> dict[int, asked.Testimony]:
    """What the ranks tell after the last step."""
    draw = Random(seed)
    clock = dict.fromkeys(range(of.size), BEGAN)
    world = {"0": tuple(range(of.size))} if of.has_world else {}
    calls: dict[int, list[flight.Collective]] = {rank: [] for rank in clock}
    spans: dict[int, list[tuple[int, int]]] = {rank: [] for rank in clock}  # until when, a line
    for step in range(of.steps):
        for rank in clock:
            share = of.late.get(rank, 0.0)
            extra = share / (1 - share) + of.once.get(rank, 0.0) * (step == of.steps // 2)
            work_ns = of.step_ns * max(0.0, 1 + of.noise(draw))
            clock[rank] += int(work_ns)
            spans[rank].append((clock[rank], WORK))
            clock[rank] += int(of.step_ns * extra)
            spans[rank].append((clock[rank], SLOW))
        for group, ranks in {**of.groups, **world}.items():
            last = max(clock[rank] for rank in ranks)
            for rank in ranks:
                call = flight.Collective(group, step + 1, "all_reduce", "", "", clock[rank])
                calls[rank].append(call)
                clock[rank] = last + MS
                spans[rank].append((clock[rank], WAIT))
    members = {name: frozenset(ranks) for name, ranks in {**of.groups, **world}.items()}
    now = max(clock.values())
    return {
        rank: asked.Testimony(
            "", _looks(spans[rank], of.look_ns, now), _record(calls[rank], members, rank), now, 0.0
        )
        for rank in clock
    }


def _record(
    calls: Sequence[flight.Collective], members: Mapping[str, frozenset[int]], rank: int
) -> flight.Record:
    own = {name: ranks for name, ranks in members.items() if rank in ranks}
    return flight.Record(tuple(calls), own)


def _looks(spans: Sequence[tuple[int, int]], every_ns: int, now: int) -> list[asked.StackSample]:
    """Of the last two seconds."""
    found = []
    when = max(BEGAN, now - 2000 * MS)
    for until, line in spans:
        while when < until:
            found.append(look(when, line))
            when += every_ns
    return found


def look(when: int, line: int) -> asked.StackSample:
    return asked.StackSample(when, f"train.py:{line}", False)
