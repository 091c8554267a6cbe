"""What is decided when: tables for what is specified, and what holds whatever happens."""

import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.outcome import failures
from spawnlaunch.outcome.failures import TIMED_OUT, Cause, Failure
from spawnlaunch.run.decisions import (
    KILLING,
    RUNNING,
    STOPPING,
    Decisions,
)

TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
STOP, CONT, TSTP = signal.SIGSTOP, signal.SIGCONT, signal.SIGTSTP


class Launch:
    """The decisions of a launch, and what they have called since `happens` was called last."""

    def __init__(self, n: int, **more: Any) -> None:
        self.did: list[tuple[Any, ...]] = []
        self.rules = Decisions(self, self, frozenset(range(n)), grace_s=30.0, **more)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: self.did.append((name, *args, *more))

    def happens(self, what: str, *args: Any, **more: Any) -> "Launch":
        self.did = []
        getattr(self.rules, what)(*args, **more)
        return self

    def ends(self, *codes: int) -> "Launch":
        """The workers end, those with the lowest ranks first."""
        for rank, code in zip(sorted(self.rules.running), codes, strict=False):
            self.happens("exited", rank, code, None)
        return self


def launch(n: int, **more: Any) -> Launch:
    return Launch(n, **more)


def failed(rank: int, code: int, when: float, early_s: float = 0.0) -> Failure:
    return Failure(Cause("failure", rank=rank, code=code), when, early_s)


def ranks(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def test_the_first_failure_stops_the_others_and_is_announced():
    one = launch(3).happens("exited", 1, 7, 4711)
    cause = Cause("failure", rank=1, code=7, pid=4711)
    others = ranks(0, 2)
    assert one.did == [("send", TERM, others), ("set_deadline", 30.0), ("announce", cause)]
    assert one.rules.cause == cause


def test_after_a_failure_the_others_may_have_another_grace():
    one = launch(2, failure_grace_s=3.0).ends(7)
    assert ("set_deadline", 3.0) in one.did


def test_later_failures_change_neither_status_nor_cause():
    one = launch(3).ends(7, 9, -TERM)
    assert (one.rules.status, one.did) == (7, [])


def test_of_several_failures_the_first_is_the_cause_and_nobody_is_stopped_again():
    def seen(early_s: float) -> Launch:
        one = launch(3).happens("exited", 1, 7, None).happens("failed", failed(1, 7, 10.0))
        one.happens("exited", 0, -11, None)
        return one.happens("failed", failed(0, -11, 10.2, early_s))

    first = seen(early_s=5.0)
    cause = failed(0, -11, 0.0).cause
    assert (first.rules.cause, first.rules.status, first.did) == (cause, 139, [])
    assert seen(early_s=0.0).rules.status == 7
    told = launch(3).happens("signalled", TERM).ends(7).happens("failed", failed(0, 7, 10.0))
    assert told.rules.cause == Cause("signal", code=-TERM)


def test_a_worker_that_ends_with_0_stops_nobody():
    one = launch(2).ends(0)
    assert (one.rules.stage, one.did) == (RUNNING, [])
    assert one.ends(0).rules.status == 0


def test_death_by_a_signal_is_128_plus_its_number():
    assert launch(1).ends(-KILL).rules.status == 137


@pytest.mark.parametrize("signum", [TERM, INT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_stops_the_workers_and_is_the_status(signum: int):
    one = launch(2).happens("signalled", signum)
    cause, both = Cause("signal", code=-signum), ranks(0, 1)
    assert one.did == [("send", TERM, both), ("set_deadline", 30.0), ("announce", cause)]
    assert one.ends(-TERM, -TERM).rules.status == 128 + signum


def test_workers_that_end_alike_by_themselves_decide_the_status_after_a_signal():
    def status(signum: int, *codes: int) -> int:
        return launch(2).happens("signalled", signum).ends(*codes).rules.status

    assert status(TERM, 85, 85) == 85
    assert status(TERM, 0, 0) == 0
    assert status(TERM, 85, 0) == 143
    assert status(INT, -TERM, -TERM) == 130


def test_who_has_not_ended_when_the_grace_is_over_is_killed():
    one = launch(3).ends(1, -TERM).happens("time_up")
    assert one.did == [
        ("kill", ranks(2)),
        ("set_deadline", failures.STUCK_S),
        ("announce", "overdue"),
    ]
    assert (one.rules.stage, one.rules.status) == (KILLING, 1)


def test_what_does_not_die_of_SIGKILL_is_named_once_and_left_where_it_cannot_die():
    one = launch(1).happens("signalled", TERM).happens("time_up").happens("time_up")
    assert one.did == [("set_deadline", None), ("announce", "stuck")]
    one.happens("time_up", unkillable=ranks(0))
    assert one.did == [("set_deadline", failures.STUCK_S), ("leave", ranks(0))]


def test_a_second_SIGINT_kills_at_once_but_a_second_SIGTERM_does_not():
    def did(first: int, second: int) -> list[tuple[Any, ...]]:
        return launch(2).happens("signalled", first).happens("signalled", second).did

    assert did(INT, INT)[0] == ("kill", ranks(0, 1))
    assert did(TERM, TERM) == did(TERM, INT) == []


def test_a_signal_to_the_guard_ends_the_job_and_is_not_counted_as_a_second_one():
    one = launch(2).happens("guard_signalled", INT)
    assert one.did[0] == ("send", TERM, ranks(0, 1))
    assert one.happens("signalled", INT).did == []
    assert one.ends(-TERM, -TERM).rules.status == 130


@pytest.mark.parametrize("signum", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH])
def test_signals_for_the_workers_are_forwarded_and_change_nothing(signum: int):
    one = launch(2).happens("signalled", signum)
    assert one.did == [("forward", signum, ranks(0, 1))]
    assert (one.rules.stage, one.rules.cause) == (RUNNING, None)


def test_job_control_is_for_all_workers():
    one = launch(2).happens("signalled", TSTP)
    assert one.did == [("send", STOP, ranks(0, 1))]
    assert one.happens("signalled", CONT).did == [("resumed",), ("send", CONT, ranks(0, 1))]


def test_workers_that_are_stopped_are_continued_to_use_their_grace():
    one = launch(2).happens("signalled", TSTP).happens("signalled", TERM)
    both = ranks(0, 1)
    assert one.did[:3] == [("send", TERM, both), ("resumed",), ("send", CONT, both)]
    assert not one.rules.is_suspended


def test_workers_of_a_launcher_that_is_gone_are_killed_at_once():
    for one in (launch(3), launch(3).happens("signalled", TERM), launch(3).ends(1)):
        assert one.happens("launcher_died").did[0] == ("kill", one.rules.running)


def test_a_worker_that_has_the_terminal_has_had_CTRL_C_and_has_the_grace_to_end():
    def typed() -> Launch:
        return launch(1, foreground=ranks(0)).happens("signalled", INT, is_typed=True)

    assert typed().did == [("set_deadline", 30.0), ("announce", "interrupt")]
    assert typed().ends(-INT).rules.status == 130
    assert typed().ends(4).rules.status == 4
    assert typed().happens("time_up").did[0] == ("kill", ranks(0))
    assert typed().happens("signalled", INT, is_typed=True).did[0] == ("kill", ranks(0))


def test_the_one_that_is_debugged_has_what_was_typed_and_CTRL_C_for_itself():
    def debugged() -> Launch:
        return launch(3, foreground=ranks(1), is_debugged=True)

    alone = launch(1, foreground=ranks(0), is_debugged=True)
    for each in (debugged(), alone):
        one = each.happens("signalled", INT, is_typed=True)
        assert (one.did, one.rules.interrupts) == ([], 0)
    assert debugged().happens("signalled", TSTP, is_typed=True).did == [("send", STOP, ranks(0, 2))]
    assert debugged().happens("signalled", INT).rules.stage == STOPPING  # by somebody else
    for ended in (debugged().happens("exited", 1, 0, None), launch(1, foreground=ranks(0)).ends(0)):
        assert ended.happens("signalled", INT, is_typed=True).rules.stage == STOPPING


@pytest.mark.parametrize("signum", [signal.SIGWINCH, TSTP])
def test_what_was_typed_for_a_worker_that_has_the_terminal_is_not_sent_again(signum: int):
    one = launch(1, foreground=ranks(0))
    ((_, _, who),) = one.happens("signalled", signum, is_typed=True).did
    assert not who


def test_when_the_time_is_over_the_workers_are_told_to_end_and_the_status_is_that_of_timeout():
    one, both = launch(2).happens("timed_out"), ranks(0, 1)
    announced = ("announce", Cause("timeout"))
    assert one.did == [("send", TERM, both), ("set_deadline", 30.0), announced]
    assert one.ends(0, 0).rules.status == TIMED_OUT
    assert launch(2).ends(7).happens("timed_out").ends(-TERM).rules.status == 7


@pytest.mark.parametrize(
    "event",
    [
        ("signalled", TERM),
        ("signalled", INT),
        ("guard_signalled", TERM),
        ("timed_out",),
        ("launcher_died",),
    ],
)
def test_whoever_tells_the_launch_to_end_while_it_stops_a_failure_wants_no_restart(
    event: tuple[Any, ...],
):
    one = launch(2).ends(7)
    assert not one.rules.is_end_requested
    assert one.happens(*event).rules.has_later_request
    assert launch(2).ends(7, -TERM).happens(*event).rules.is_end_requested


def test_all_nodes_stop_alike_and_the_hub_tells_why():
    cause, both = Cause("lost", "node2"), ranks(0, 1)
    one = launch(2).happens("halt", cause, 5.0)
    assert one.did == [("send", TERM, both), ("set_deadline", 5.0)]
    assert (one.rules.stage, one.rules.cause) == (STOPPING, cause)
    assert one.happens("halt", cause, 5.0).did == []
    assert one.happens("halt", cause, 0.0).did == [
        ("kill", both),
        ("set_deadline", failures.STUCK_S),
    ]
    assert one.happens("halt", cause, 0.0).did == []
    assert launch(2).ends(7).happens("halt", cause, 5.0).rules.status == 7


def test_SIGUSR2_asks_for_stacks_where_that_was_wanted():
    one = launch(2, stack_signal=signal.SIGUSR2).happens("signalled", signal.SIGUSR2)
    assert one.did == [("show_stacks", ranks(0, 1))]
    assert one.happens("stacks_shown").did == []
    one.happens("signalled", signal.SIGUSR1)
    assert one.did == [("forward", signal.SIGUSR1, ranks(0, 1))]


@pytest.mark.parametrize("ends", [False, True])
def test_silence_is_told_of_and_ends_the_workers_only_where_that_was_wanted(ends: bool):
    one = launch(2, ends_hung=ends).happens("silent")
    assert one.did == [("show_stacks", ranks(0, 1), "is_silent")]
    one.happens("stacks_shown")
    assert one.rules.stage == (STOPPING if ends else RUNNING)
    assert (("send", TERM, ranks(0, 1)) in one.did) == ends
    assert one.ends(0, 0).rules.status == (TIMED_OUT if ends else 0)


def test_who_is_stopped_or_ending_does_not_hang():
    for before in (("signalled", TSTP), ("signalled", TERM), ("exited", 0, 7, None)):
        assert launch(2, ends_hung=True).happens(*before).happens("silent").did == []


def test_who_ended_while_the_stacks_were_told_did_not_hang():
    for code in (0, 7):
        hung = launch(1, ends_hung=True).happens("silent").ends(code).happens("stacks_shown")
        assert hung.rules.status == code


EVENTS = st.one_of(
    st.tuples(
        st.just("exited"), st.integers(0, 3), st.sampled_from([0, 1, 85, -TERM, -KILL]), st.none()
    ),
    st.tuples(
        st.just("signalled"),
        st.sampled_from([INT, TERM, signal.SIGUSR1, TSTP, CONT]),
        st.booleans(),
    ),
    st.tuples(st.just("guard_signalled"), st.sampled_from([INT, TERM])),
    st.just(("time_up",)),
    st.tuples(st.just("halt"), st.just(Cause("lost")), st.sampled_from([0.0, 5.0])),
    st.sampled_from([("launcher_died",), ("timed_out",), ("silent",), ("stacks_shown",)]),
)


@given(st.integers(1, 4), st.booleans(), st.booleans(), st.lists(EVENTS, max_size=12))
def test_whatever_happens(n, has_terminal, ends_hung, events):
    one = launch(n, foreground=ranks(*range(has_terminal)), ends_hung=ends_hung)
    rules, deadline = one.rules, None
    for what, *args in events:
        if what == "exited" and args[0] not in rules.running:
            continue
        if what == "time_up":
            if deadline is None:
                continue
            deadline = None
        stage, cause = rules.stage, rules.cause
        one.happens(what, *args)
        for name, *about in one.did:
            if name == "set_deadline":
                (deadline,) = about
            elif name in ("send", "forward", "kill", "show_stacks"):
                (named,) = (each for each in about if isinstance(each, frozenset))
                assert named <= rules.running
        the_first_cause_stays(cause, rules)
        each_stage_is_entered_with_its_signal(stage, one)
        if rules.running and rules.stage == STOPPING:
            assert deadline is not None
    assert 0 <= rules.status <= 255


def the_first_cause_stays(cause: Cause | None, rules: Decisions) -> None:
    assert rules.stage == RUNNING or rules.cause
    if cause:
        assert rules.cause == cause


def each_stage_is_entered_with_its_signal(stage: str, one: Launch) -> None:
    running = one.rules.running
    if stage != one.rules.stage == STOPPING and running:
        assert {("send", TERM, running), ("announce", "interrupt")} & set(one.did)
    if stage != one.rules.stage == KILLING:
        assert ("kill", running) in one.did
