"""The clock of patience and the alarms of the loop, on a machine that stops at generated times."""

import errno
import itertools
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.base import machine as door
from spawnlaunch.base.events import LATE_S, LOOK_S, Loop, patient_poll

NOTICED_S = LOOK_S + LATE_S + 0.01  # a gap that is longer is seen wherever it falls
gaps = st.lists(
    st.tuples(st.floats(0.0, 20.0), st.floats(NOTICED_S, 100.0)), max_size=6
)  # seconds that it runs, then that it does not


class Machine:
    """Its clock, and a poller that nobody makes ready. It stops by a plan."""

    def __init__(self, plan: list[tuple[float, float]]) -> None:
        self.now = self.ran = 1000.0  # seconds in all, and without the gaps
        begins = itertools.accumulate((runs for runs, _ in plan), initial=self.ran)
        self._gaps = list(
            zip(itertools.islice(begins, 1, None), (gap for _, gap in plan), strict=False)
        )

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        until = self.now + math.ceil(timeout * 1000) / 1000  # as epoll and poll do
        while self._gaps and self._gaps[0][0] <= self.ran + max(0.0, until - self.now):
            begin, gap = self._gaps.pop(0)
            self.now += begin - self.ran + gap
            self.ran = begin
        self.ran += max(0.0, until - self.now)
        self.now = max(self.now, until)
        return []


class Epoll:
    """The machine's poller, for a loop: that tries first whether it works."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.is_tried = machine, False

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        if self.is_tried:
            return self.machine.poll(timeout)
        self.is_tried = True
        return []

    def register(self, fd: object, *_: object) -> None:
        if fd is self:
            raise OSError(errno.EINVAL, "it cannot be watched by itself")


@pytest.fixture
def machine_of(monkeypatch):
    """A machine with such a plan, whose time and poller are the loop's."""

    def made(plan: list[tuple[float, float]]) -> Machine:
        machine = Machine(plan)
        monkeypatch.setattr(door, "monotonic", lambda: machine.now)
        monkeypatch.setattr(door, "epoll", lambda: Epoll(machine))
        return machine

    yield made
    door.exclude(door.running_s() - door.monotonic())  # as if nothing had been lost


given_gaps = given(plan=gaps, after_s=st.floats(0.0, 60.0))


@given_gaps
def test_patience_lasts_for_its_whole_time_of_running_and_then_ends(machine_of, plan, after_s):
    """Also where one without a loop waits meanwhile, who sees some of the gaps."""
    for waits_s in (0.0, 5.0):
        machine, rung = machine_of(plan), []
        began, turning = machine.ran, Loop()
        turning.alarm(lambda m=machine, b=began, r=rung: r.append(m.ran - b), after_s)
        if waits_s:
            patient_poll(SimpleNamespace(poll=lambda ms, m=machine: m.poll(ms / 1000)), waits_s)
        while not rung:
            turning.turn()
        assert rung[0] <= after_s + waits_s + len(plan) * LOOK_S + 0.01
        assert waits_s or rung[0] >= after_s - 1e-6


@given_gaps
def test_what_is_of_the_wall_is_rung_as_soon_as_the_machine_runs(machine_of, plan, after_s):
    machine, rung = machine_of(plan), []
    turning = Loop()
    due = machine.now + after_s
    turning.alarm(lambda: rung.append(machine.ran), after_s, always=True)
    other = Machine(plan)
    other.poll(after_s)
    while not rung:
        turning.turn()
    assert other.now >= due - 1e-6
    assert rung[0] == pytest.approx(other.ran, abs=0.01)


@given_gaps
def test_who_waits_without_a_loop_waits_for_the_whole_time_too(machine_of, plan, after_s):
    machine = machine_of(plan)
    began = machine.ran
    in_ms = SimpleNamespace(poll=lambda timeout: machine.poll(timeout / 1000))
    assert patient_poll(in_ms, after_s) == []
    assert machine.ran - began >= after_s - 1e-6


@given_gaps
def test_nothing_is_due_while_all_that_is_waited_for_is_kept_from_running(
    machine_of, plan, after_s
):
    machine, rung, standing = machine_of(plan), [], [True]
    turning = Loop(lambda: bool(standing))
    turning.turn(0)
    turning.alarm(lambda: rung.append("patience"), after_s + 0.1)
    turning.alarm(lambda: rung.append("wall"), after_s, always=True)
    end = machine.now + 2 * after_s + 1.0
    while machine.now < end:
        turning.turn()
    assert rung == ["wall"]
    standing.clear()
    while len(rung) == 1:
        turning.turn()
    assert rung == ["wall", "patience"]


@given(blocked_s=st.floats(0.0, 100.0))
def test_while_a_call_blocks_hardly_any_patience_runs(machine_of, blocked_s: float):
    machine, rung = machine_of([]), []
    turning = Loop()
    turning.alarm(lambda: rung.append(1), LATE_S + 0.1)

    def block() -> None:
        machine.now += blocked_s

    turning.watch(7, block)
    machine.poll = lambda _timeout: [(7, 0)]
    turning.turn()
    assert not rung
