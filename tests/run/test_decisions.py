"""What is decided when: tables for what is specified, and what holds whatever happens."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.run.decisions import (
    INTERRUPTED,
    KILLING,
    LOOK_S,
    RUNNING,
    STOPPING,
    STUCK_S,
    TIMED_OUT,
    Action,
    Announce,
    Cause,
    Deadline,
    Event,
    Exited,
    Forward,
    GuardSignalled,
    Kill,
    LauncherGone,
    Send,
    Signalled,
    Silent,
    StacksTold,
    State,
    TellStacks,
    TimedOut,
    TimeUp,
    decide,
)

TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL


def launch(n: int, *, lone: bool = False, foreground: frozenset[int] = frozenset()) -> State:
    return State(frozenset(range(n)), grace_s=30.0, lone=lone, foreground=foreground)


def after(state: State, *events: Event) -> tuple[State, list[Action]]:
    """The state after all events, and the actions of the last."""
    actions: list[Action] = []
    for event in events:
        state, actions = decide(state, event)
    return state, actions


def ranks(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def test_the_first_failure_stops_the_others_and_is_announced():
    state, actions = after(launch(3), Exited(1, 7))
    assert actions == [Send(TERM, ranks(0, 2)), Deadline(30.0), Announce("failure", 1)]
    assert state.cause == Cause("failure", 1, 7)


def test_later_failures_change_neither_status_nor_cause():
    state, actions = after(launch(3), Exited(1, 7), Exited(0, 9), Exited(2, -TERM))
    assert (state.status, actions) == (7, [])


def test_a_worker_that_ends_with_0_stops_nobody():
    state, actions = after(launch(2), Exited(0, 0))
    assert (state.stage, actions) == (RUNNING, [])
    assert after(state, Exited(1, 0))[0].status == 0


def test_death_by_a_signal_is_128_plus_its_number():
    assert after(launch(1), Exited(0, -KILL))[0].status == 137


def test_a_signal_stops_the_workers_and_is_the_status():
    for signum in (TERM, INT, signal.SIGHUP, signal.SIGQUIT):
        state, actions = after(launch(2), Signalled(signum))
        assert actions == [Send(TERM, ranks(0, 1)), Deadline(30.0), Announce("signal", signum)]
        assert after(state, Exited(0, -TERM), Exited(1, -TERM))[0].status == 128 + signum


def test_workers_that_end_alike_by_themselves_decide_the_status_after_a_signal():
    assert after(launch(2), Signalled(TERM), Exited(0, 85), Exited(1, 85))[0].status == 85
    assert after(launch(2), Signalled(TERM), Exited(0, 0), Exited(1, 0))[0].status == 0
    assert after(launch(2), Signalled(TERM), Exited(0, 85), Exited(1, 0))[0].status == 143
    assert after(launch(2), Signalled(INT), Exited(0, -TERM), Exited(1, -TERM))[0].status == 130


def test_who_has_not_ended_when_the_grace_is_over_is_killed():
    state, actions = after(launch(3), Exited(0, 1), Exited(1, -TERM), TimeUp())
    assert actions == [Kill(ranks(2)), Deadline(STUCK_S), Announce("overdue")]
    assert (state.stage, state.status) == (KILLING, 1)


def test_what_does_not_die_of_SIGKILL_is_named_once():
    _, actions = after(launch(1), Signalled(TERM), TimeUp(), TimeUp())
    assert actions == [Deadline(None), Announce("stuck")]


def test_a_second_SIGINT_kills_at_once_but_a_second_SIGTERM_does_not():
    _, actions = after(launch(2), Signalled(INT), Signalled(INT))
    assert actions[0] == Kill(ranks(0, 1))
    assert after(launch(2), Signalled(TERM), Signalled(TERM))[1] == []
    assert after(launch(2), Signalled(TERM), Signalled(INT))[1] == []


def test_a_signal_to_the_guard_ends_the_job_and_is_not_counted_as_a_second_one():
    state, actions = after(launch(2), GuardSignalled(INT))
    assert actions[0] == Send(TERM, ranks(0, 1))
    assert after(state, Signalled(INT))[1] == []
    assert after(state, Exited(0, -TERM), Exited(1, -TERM))[0].status == 130


def test_signals_for_the_workers_are_forwarded_and_change_nothing():
    for signum in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
        state, actions = after(launch(2), Signalled(signum))
        assert (state, actions) == (launch(2), [Forward(signum, ranks(0, 1))])


def test_job_control_is_for_all_workers():
    state, actions = after(launch(2), Signalled(signal.SIGTSTP))
    assert actions == [Send(signal.SIGSTOP, ranks(0, 1))]
    assert after(state, Signalled(signal.SIGCONT))[1] == [Send(signal.SIGCONT, ranks(0, 1))]


def test_workers_that_are_stopped_are_continued_to_use_their_grace():
    _, actions = after(launch(2), Signalled(signal.SIGTSTP), Signalled(TERM))
    assert actions[:2] == [Send(TERM, ranks(0, 1)), Send(signal.SIGCONT, ranks(0, 1))]


def test_workers_of_a_launcher_that_is_gone_are_killed_at_once():
    for before in ([], [Signalled(TERM)], [Exited(0, 1)]):
        state, actions = after(launch(3), *before, LauncherGone())
        assert actions[0] == Kill(state.running)


def test_a_worker_that_has_the_terminal_has_had_CTRL_C_and_half_the_grace_to_answer():
    state, actions = after(launch(1, lone=True), Signalled(INT, typed=True))
    assert actions == [Deadline(LOOK_S), Announce("interrupt", INT)]
    assert after(state, Exited(0, -INT))[0].status == 130
    assert after(state, Exited(0, 4))[0].status == 4
    waited_s = LOOK_S
    while (decision := after(state, TimeUp()))[0].stage == INTERRUPTED:
        state, (deadline,) = decision
        waited_s += deadline.after_s
    assert waited_s == pytest.approx(15.0)
    assert decision[1][:2] == [Send(TERM, ranks(0)), Deadline(15.0)]
    assert after(state, TimeUp(), TimeUp())[1][0] == Kill(ranks(0))
    assert after(state, Signalled(INT, typed=True))[1][0] == Kill(ranks(0))


def test_a_worker_that_answers_CTRL_C_with_a_prompt_is_left_alone():
    lone = launch(1, lone=True)
    assert after(lone, Signalled(INT, typed=True, prompt=True)) == (lone, [])
    assert after(lone, Signalled(INT, typed=True), TimeUp(prompt=True)) == (lone, [Deadline(None)])


def test_of_several_the_one_that_is_debugged_has_what_was_typed_and_CTRL_C_for_itself():
    debugged = launch(3, foreground=frozenset({1}))
    assert after(debugged, Signalled(signal.SIGINT, typed=True)) == (debugged, [])
    _, (stopped,) = after(debugged, Signalled(signal.SIGTSTP, typed=True))
    assert isinstance(stopped, Send)
    assert stopped.ranks == {0, 2}
    sent, _ = after(debugged, Signalled(signal.SIGINT))
    assert sent.stage == STOPPING  # by somebody else, and not typed
    ended, _ = after(debugged, Exited(1, 0), Signalled(signal.SIGINT, typed=True))
    assert ended.stage == STOPPING


def test_what_was_typed_for_a_worker_that_has_the_terminal_is_not_sent_again():
    for signum in (signal.SIGWINCH, signal.SIGTSTP):
        _, (action,) = after(
            launch(1, lone=True, foreground=frozenset({0})), Signalled(signum, typed=True)
        )
        assert isinstance(action, Send | Forward)
        assert not action.ranks


def test_when_the_time_is_over_the_workers_are_told_to_end_and_the_status_is_that_of_timeout():
    state, actions = after(launch(2), TimedOut())
    assert actions == [Send(TERM, ranks(0, 1)), Deadline(30.0), Announce("timeout")]
    assert after(state, Exited(0, 0), Exited(1, 0))[0].status == TIMED_OUT
    assert after(launch(2), Exited(0, 7), TimedOut(), Exited(1, -TERM))[0].status == 7


def test_whoever_tells_the_launch_to_end_while_it_stops_a_failure_wants_no_restart():
    failed, _ = after(launch(2), Exited(0, 7))
    assert not failed.told_later
    for event in (
        Signalled(TERM),
        Signalled(INT),
        GuardSignalled(TERM),
        TimedOut(),
        LauncherGone(),
    ):
        assert after(failed, event)[0].told_later
        assert after(failed, Exited(1, -TERM), event)[0].told_later


def test_SIGUSR2_asks_for_stacks_where_that_was_wanted():
    asked = launch(2)._replace(stack_signal=signal.SIGUSR2)
    state, actions = after(asked, Signalled(signal.SIGUSR2))
    assert (state, actions) == (asked, [TellStacks(ranks(0, 1))])
    assert after(state, StacksTold())[1] == []
    assert after(asked, Signalled(signal.SIGUSR1))[1] == [Forward(signal.SIGUSR1, ranks(0, 1))]


def test_silence_is_told_of_and_ends_the_workers_only_where_that_was_wanted():
    for ends in (False, True):
        state, actions = after(launch(2)._replace(ends_hung=ends), Silent())
        assert actions == [Announce("silent"), TellStacks(ranks(0, 1))]
        state, actions = after(state, StacksTold())
        assert state.stage == (STOPPING if ends else RUNNING)
        assert (Send(TERM, ranks(0, 1)) in actions) == ends
        assert after(state, Exited(0, 0), Exited(1, 0))[0].status == (TIMED_OUT if ends else 0)


def test_who_is_stopped_or_ending_does_not_hang():
    for before in (Signalled(signal.SIGTSTP), Signalled(TERM), Exited(0, 7)):
        assert after(launch(2)._replace(ends_hung=True), before, Silent())[1] == []


def test_who_ended_while_the_stacks_were_told_did_not_hang():
    hung = launch(1)._replace(ends_hung=True)
    assert after(hung, Silent(), Exited(0, 0), StacksTold())[0].status == 0
    assert after(hung, Silent(), Exited(0, 7), StacksTold())[0].status == 7


EVENTS = st.one_of(
    st.builds(Exited, st.integers(0, 3), st.sampled_from([0, 1, 85, -TERM, -KILL])),
    st.builds(
        Signalled,
        st.sampled_from([INT, TERM, signal.SIGUSR1, signal.SIGTSTP, signal.SIGCONT]),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(GuardSignalled, st.sampled_from([INT, TERM])),
    st.builds(TimeUp, st.booleans()),
    st.sampled_from([LauncherGone(), TimedOut(), Silent(), StacksTold()]),
)


@given(st.integers(1, 4), st.booleans(), st.booleans(), st.lists(EVENTS, max_size=12))
def test_whatever_happens(n, lone, ends_hung, events):
    state = launch(n, lone=lone and n == 1)._replace(ends_hung=ends_hung)
    deadline: float | None = None
    for event in events:
        if isinstance(event, Exited) and event.rank not in state.running:
            continue
        if isinstance(event, TimeUp):
            if deadline is None:
                continue
            deadline = None
        before = state
        state, actions = decide(state, event)
        for action in actions:
            if isinstance(action, Deadline):
                deadline = action.after_s
        only_the_living_are_signalled(state, actions)
        the_first_cause_stays(before, state)
        each_stage_is_entered_with_its_signal(before, state, actions)
        what_is_told_to_end_has_a_time_to_end_by(state, deadline)
    assert 0 <= state.status <= 255


def only_the_living_are_signalled(state: State, actions: list[Action]) -> None:
    for action in actions:
        if isinstance(action, Send | Forward | Kill | TellStacks):
            assert action.ranks <= state.running


def the_first_cause_stays(before: State, state: State) -> None:
    assert state.stage == RUNNING or state.cause
    if before.stage != INTERRUPTED and before.cause:
        assert state.cause == before.cause


def what_is_told_to_end_has_a_time_to_end_by(state: State, deadline: float | None) -> None:
    if state.running and state.stage in (INTERRUPTED, STOPPING):
        assert deadline is not None


def each_stage_is_entered_with_its_signal(
    before: State, state: State, actions: list[Action]
) -> None:
    if before.stage != state.stage == STOPPING and state.running:
        assert Send(TERM, state.running) in actions
    if before.stage != state.stage == KILLING:
        assert Kill(state.running) in actions
