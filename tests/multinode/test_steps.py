"""What an event costs the hub does not grow with the nodes; only what all are told of does.

Steps are counted, as instructions of Python: so a busy machine changes nothing here.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from functools import cache
from types import FrameType
from typing import Any

import pytest

from spawnlaunch.multinode.deadlines import Deadlines
from spawnlaunch.multinode.messages import Beat, Done, Idle, Silent, Stacked
from tests.multinode.playing import AGAIN, Gang, fails
from tests.support.matrix import mostly_full

GROWS = 1.4  # at most: with 8 or 16 times the nodes, whose logarithm is 1.7 times as large
SIZES = [(16, 128), (64, 1024)]


def counted(call: Callable[[], None]) -> int:
    """How many instructions of Python a call takes."""
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps


class Counted(Gang):
    """A gang that counts what each event takes, and to how many something is said at it."""

    def __init__(self, nodes: int, **settings: Any) -> None:
        self.steps: dict[str, list[int]] = {}
        self.to_all: list[float] = []
        self.nodes = nodes
        hosts = tuple(f"node{conn}" for conn in range(nodes))
        super().__init__(least=nodes, most=nodes, expected=hosts, **settings)

    def each(self, name: str, conns: Iterable[int], event: Callable[[int], None]) -> None:
        """The same happens to each of these."""
        for conn in conns:
            self.now += 0.001
            self.made.clear()
            steps = counted(lambda conn=conn: event(conn))  # type: ignore[misc]
            told = len(self.calls("send"))
            if told > 8:
                self.to_all.append(steps / told)
            else:
                self.steps.setdefault(name, []).append(steps)

    def says(self, message: object) -> Callable[[int], None]:
        return lambda conn: self.hub.received(conn, message)

    def comes(self, conn: int) -> None:
        self.come(conn, f"node{conn % self.nodes}", boot="1")


def meet(gang: Counted) -> None:
    """All come but one, who is waited for; and beat."""
    *most, last = range(gang.nodes)
    gang.each("hello", most, gang.comes)
    gang.each("a beat while one is missing", most, gang.says(Beat(1)))
    gang.each("hello", [last], gang.comes)


def run(gang: Counted) -> None:
    *most, last = every = range(gang.nodes)
    gang.each("a beat while workers run", every, gang.says(Beat(2)))
    gang.each("silent", most, gang.says(Silent(1)))
    gang.each("a beat while many are silent", most, gang.says(Beat(3)))
    gang.each("silent, the last", [last], gang.says(Silent(1)))
    gang.each("stacked", most, gang.says(Stacked(1)))
    gang.each("talking", every, gang.says(Silent(1, False)))
    gang.each("done", most, gang.says(Done(1)))


def fail(gang: Counted) -> None:
    """All fail, the last as first."""
    *most, _ = every = range(gang.nodes)
    failure = lambda conn: fails(1, conn, 1, age_s=conn / 1000)  # noqa: E731
    gang.each("failed", every, lambda conn: gang.hub.received(conn, failure(conn)))
    gang.each("a beat while they stop", every, gang.says(Beat(4)))
    gang.each("idle", most, gang.says(Idle(1)))


def lose_many(gang: Counted) -> None:
    """A quarter is lost, and comes back, as other processes of the same machines."""
    lost = range(gang.nodes // 2, gang.nodes * 3 // 4)
    rest = [conn for conn in range(gang.nodes) if conn not in lost]
    gang.each("lost", lost, lambda conn: gang.loses(conn, is_certain=conn % 2 > 0))
    gang.each("idle", rest, gang.says(Idle(1)))
    gang.each("beat, many lost", rest, gang.says(Beat(5)))
    gang.each("one comes back", lost, lambda conn: gang.comes(gang.nodes + conn))


LIVES = {"run": run, "fail": fail, "lose many": lose_many}


@cache
def lived(life: str, nodes: int) -> Counted:
    gang = Counted(nodes, **AGAIN)
    meet(gang)
    LIVES[life](gang)
    return gang


@pytest.mark.parametrize("sizes", mostly_full([[size] for size in SIZES]))
@pytest.mark.parametrize("life", LIVES)
def test_an_event_takes_no_more_steps_where_there_are_more_nodes(
    life: str, sizes: list[tuple[int, int]]
) -> None:
    ((small, large),) = sizes
    few, many = lived(life, small), lived(life, large)
    assert few.steps.keys() == many.steps.keys()
    for name, steps in many.steps.items():
        mean, least = sum(steps) / len(steps), sum(few.steps[name]) / len(few.steps[name])
        assert mean <= GROWS * least, f"{name}: {least:.0f} with {small}, {mean:.0f} with {large}"
        if name != "talking":  # then all show their stacks anew, which each had said
            assert max(steps) <= 12 * mean + 2000, f"{name}: {max(steps)} once, of {mean:.0f}"
    assert many.to_all, "what all are told takes the same for each"
    assert max(many.to_all) <= GROWS * max(few.to_all)
    assert len(many.to_all) <= len(few.to_all) + 1, "all are told more often"


@pytest.mark.parametrize("seed", range(50))
def test_deadlines_come_in_their_order_however_often_they_are_put_off(seed: int) -> None:
    """Compared with a search among all."""
    chance, times, deadlines = random.Random(seed), dict[int, float](), Deadlines()
    for _ in range(300):
        key, what = chance.randrange(12), chance.random()
        if what < 0.6:
            times[key] = chance.choice((1.0, 2.0, chance.random() * 9))
            deadlines.set(key, times[key])
        elif what < 0.8:
            times.pop(key, None)
            deadlines.drop(key)
        else:
            now = chance.random() * 9
            due = [one for one, when in times.items() if when <= now]
            told = deadlines.due(now)
            assert [times[one] for one in told] == sorted(times[one] for one in due)
            assert sorted(told) == sorted(due)
            times = {one: when for one, when in times.items() if when > now}
        assert deadlines.first()[0] == min(times.values(), default=float("inf"))
        assert len(deadlines) == len(times)
        assert all(key in deadlines for key in times)
