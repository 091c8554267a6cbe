"""What an event costs the hub does not grow with the nodes; only what all are told of does.

Steps are counted, as instructions of Python: so a busy machine changes nothing here.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

import pytest

from spawnlaunch.gang.deadlines import Deadlines
from spawnlaunch.gang.messages import (
    Beat,
    Done,
    Idle,
    Signalled,
    Silent,
    Stacked,
    Talking,
    Waiting,
)  # fmt: skip
from tests.gang.test_rules import Gang, fails

FEW, MANY = 64, 1024
GROWS = 1.4  # at most: 16 times the nodes, and the logarithm of them is 1.7 times as large

Event = tuple[str, Callable[[], None]]


class Counted(Gang):
    """A gang that counts what each event takes, and to how many something is said at it."""

    def __init__(self, nodes: int, **settings: Any) -> None:
        self.steps: dict[str, list[int]] = {}
        self.to_all: list[float] = []
        self.nodes = nodes
        hosts = tuple(f"node{conn}" for conn in range(nodes))
        super().__init__(least=nodes, most=nodes, expected=hosts, **settings)

    def count(self, name: str, event: Callable[[], None]) -> None:
        self.made.clear()
        steps = counted(event)
        told = len(self.calls("say"))
        if told > 8:
            self.to_all.append(steps / told)
        else:
            self.steps.setdefault(name, []).append(steps)

    def count_all(self, name: str, message: Any, of: range | None = None) -> None:
        """Each of these nodes says it."""
        for conn in of or range(self.nodes):
            said = (
                message(conn) if callable(message) and not isinstance(message, tuple) else message
            )
            self.now += 0.001
            self.count(name, lambda conn=conn, said=said: self.hub.heard(conn, said))  # type: ignore[misc]


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


def comes(gang: Counted, conns: range, **hello: Any) -> None:
    for conn in conns:
        gang.count("hello", lambda conn=conn: gang.come(conn, **{"boot": "1", **hello}))  # type: ignore[misc]


def meet(gang: Counted) -> None:
    """All come but one, who is waited for; and beat."""
    comes(gang, range(gang.nodes - 1))
    gang.count_all("a beat while one is missing", Beat(1), range(gang.nodes - 1))
    comes(gang, range(gang.nodes - 1, gang.nodes))


def run(gang: Counted) -> None:
    gang.count_all("a beat while workers run", Beat(2))
    gang.count_all("silent", Silent(1), range(gang.nodes - 1))
    gang.count_all("a beat while many are silent", Beat(3), range(gang.nodes - 1))
    gang.count_all("silent, the last", Silent(1), range(gang.nodes - 1, gang.nodes))
    gang.count_all("stacked", Stacked(1), range(gang.nodes - 1))
    gang.count_all("talking", Talking(1), range(gang.nodes))


def fail(gang: Counted) -> None:
    """All fail, the last as first."""
    gang.count_all("failed", lambda conn: fails(1, conn, 1, age_s=conn / 1000))
    gang.count_all("a beat while they stop", Beat(4))
    gang.count_all("idle", Idle(1), range(gang.nodes - 1))


def lose_many(gang: Counted) -> None:
    """A quarter is lost, and comes back, as other processes of the same machines."""
    lost = range(gang.nodes // 2, gang.nodes * 3 // 4)
    for conn in lost:
        gang.count("lost", lambda conn=conn: gang.loses(conn, is_certain=conn % 2 > 0))  # type: ignore[misc]
    rest = [conn for conn in range(gang.nodes) if conn not in lost]
    for conn in rest:
        gang.count("idle", lambda conn=conn: gang.hears(conn, Idle(1)))  # type: ignore[misc]
    for conn in rest:
        gang.count("beat, many lost", lambda conn=conn: gang.hears(conn, Beat(5)))  # type: ignore[misc]
    for conn in lost:
        come = lambda conn=conn: gang.come(gang.nodes + conn, f"node{conn}", boot="1")  # noqa: E731
        gang.count("one comes back", come)  # type: ignore[arg-type]


def lose_later(gang: Counted) -> None:
    """They have all stopped, and wait for one; then more are lost."""
    gang.loses(0, is_certain=True)
    for conn in range(1, gang.nodes):
        gang.count("idle", lambda conn=conn: gang.hears(conn, Idle(1)))  # type: ignore[misc]
    for conn in range(1, gang.nodes // 4):
        gang.count("lost, later", lambda conn=conn: gang.loses(conn, is_certain=False))  # type: ignore[misc]


def be_told(gang: Counted) -> None:
    """A signal for all, and once more."""
    for again in (False, True):
        gang.count_all(f"signal {again}", Signalled(15, again))


def end(gang: Counted) -> None:
    gang.count_all("done", Done(1), range(gang.nodes - 1))


def go_before(gang: Counted) -> None:
    """Some go before all have met, and others that cannot take part come."""
    comes(gang, range(gang.nodes // 2))
    for conn in range(1, gang.nodes // 4):
        gang.count("gone", lambda conn=conn: gang.loses(conn, is_certain=True))  # type: ignore[misc]
    comes(gang, range(gang.nodes // 2, gang.nodes * 3 // 4), nproc=0)
    gang.count_all("a beat while some will not come", Beat(1), range(gang.nodes // 4))


LIVES: dict[str, tuple[Callable[[Counted], None], ...]] = {
    "run": (meet, run, end),
    "fail": (meet, fail),
    "lose many": (meet, lose_many),
    "lose later": (meet, lose_later),
    "be told": (meet, be_told),
    "go before": (go_before,),
}


@cache
def lived(life: str, nodes: int) -> Counted:
    gang = Counted(nodes, max_restarts=3, return_s=600.0, returns=life == "go before")
    for part in LIVES[life]:
        part(gang)
    return gang


@pytest.mark.parametrize("life", LIVES)
def test_an_event_takes_no_more_steps_where_there_are_more_nodes(life: str) -> None:
    few, many = lived(life, FEW), lived(life, MANY)
    assert few.steps.keys() == many.steps.keys()
    for name, steps in many.steps.items():
        mean, least = sum(steps) / len(steps), sum(few.steps[name]) / len(few.steps[name])
        assert mean <= GROWS * least, f"{name}: {least:.0f} with {FEW}, {mean:.0f} with {MANY}"
        if name != "talking":  # then all show their stacks anew, which each had said
            assert max(steps) <= 12 * mean + 2000, f"{name}: {max(steps)} once, of {mean:.0f}"


@pytest.mark.parametrize("life", ["run", "fail", "lose many", "be told"])
def test_what_all_are_told_takes_the_same_for_each(life: str) -> None:
    few, many = lived(life, FEW), lived(life, MANY)
    assert many.to_all
    assert max(many.to_all) <= GROWS * max(few.to_all)
    assert len(many.to_all) <= len(few.to_all) + 1, "all are told more often"


def test_those_who_are_lost_at_once_are_named_together() -> None:
    gang = Gang(least=9, most=9, max_restarts=3, return_s=60.0)
    for conn in range(9):
        gang.come(conn)
    gang.loses(8, is_certain=True)
    for conn in range(8):
        gang.hears(conn, Idle(1))
    for conn in range(1, 8):
        gang.loses(conn, is_certain=False, after_s=0.01)
    assert [one.who for one in gang.of(0, Waiting)] == ["node8"]
    gang.wait(5)
    assert [one.who for one in gang.of(0, Waiting)] == [
        "node8",
        ", ".join(f"node{n}" for n in (8, *range(1, 8))),
    ]


def test_deadlines_come_in_their_order_however_often_they_are_put_off() -> None:
    """Compared with a search among all."""
    for seed in range(200):
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
