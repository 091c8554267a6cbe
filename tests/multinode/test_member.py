"""Single rules of a member: what a launcher does of itself, and what it tells the hub."""

from __future__ import annotations

import pytest

from spawnlaunch.multinode import member, messages
from spawnlaunch.multinode.settings import Settings
from spawnlaunch.outcome.failures import Cause
from tests.multinode.playing import Launcher, fails

START = messages.Start(1, 0, 2, 0, 2, "10.0.0.0", 20000)
AGAIN = messages.Welcome(return_s=60.0)
SEGV = -11


def running(welcome: messages.Welcome | None = None) -> Launcher:
    """A launcher whose workers run."""
    launcher = Launcher("linked")
    launcher.member.received(welcome or messages.Welcome())
    launcher.member.received(START)
    assert launcher.calls("launch") == [[START]]
    return launcher


# Told to end


@pytest.mark.parametrize(("welcome", "status"), [(messages.Welcome(), 69), (AGAIN, 143)])
def test_one_that_was_told_to_end_has_the_others_status_where_the_hub_is_lost(
    welcome: messages.Welcome, status: int
) -> None:
    launcher = running(welcome)
    launcher.member.signalled(15)
    launcher.member.unlinked("lost")
    launcher.member.workers_ended(False, 29501)
    assert launcher.status == status


@pytest.mark.parametrize("is_greeting", [False, True])
def test_one_that_is_told_to_end_as_it_comes_tells_the_hub(is_greeting: bool) -> None:
    launcher = Launcher("linked") if is_greeting else Launcher()
    launcher.member.signalled(15)
    assert launcher.status is None
    assert len(launcher.calls("connect")) == 1, "it is on its way already"
    if is_greeting:
        assert launcher.said(messages.Signalled) == [messages.Signalled(15)]
    else:
        launcher.member.linked()
        assert [hello.end_signal for hello in launcher.said(messages.Hello)] == [15]
    launcher.member.received(messages.Welcome())
    launcher.member.received(messages.End(143))
    assert launcher.status == 143


def test_one_that_was_told_to_end_tells_a_hub_that_was_out_of_reach() -> None:
    launcher = Launcher("linked", "welcome")
    launcher.member.signalled(15)
    launcher.member.unlinked("lost")
    launcher.member.linked()
    assert launcher.said(messages.Hello)[-1].end_signal == 15


def test_one_that_is_told_to_end_looks_for_the_hub_some_seconds_longer() -> None:
    """The others, who are on their way too, would wait for it."""
    launcher = Launcher()
    launcher.member.unlinked("refused")
    assert len(launcher.calls("connect")) == 1
    launcher.member.signalled(2)
    assert len(launcher.calls("connect")) == 2
    launcher.member.unlinked("refused")
    launcher.wait(member.WORD_S - 1)
    assert (launcher.status, len(launcher.calls("connect"))) == (None, 3)
    launcher.now += 2.0
    launcher.member.unlinked("refused")
    assert launcher.status == 130


@pytest.mark.parametrize("happened", [(), ("linked",)])
def test_one_that_is_told_to_end_twice_waits_for_no_hub(happened: tuple[str, ...]) -> None:
    launcher = Launcher(*happened)
    launcher.member.signalled(15)
    launcher.member.signalled(15)
    assert launcher.status == 143


def test_one_that_is_told_to_end_waits_for_no_hub_that_does_not_answer() -> None:
    """One that was frozen itself gives it the whole time."""
    launcher = Launcher()
    launcher.member.signalled(15)
    launcher.wait(9)
    launcher.member.linked()
    assert launcher.status is None
    launcher.wait(4)
    assert launcher.status is None
    launcher.wait(1)
    assert launcher.status == 143


def test_workers_are_told_of_a_signal_whatever_the_hub_says() -> None:
    """It may be out of reach, or slow."""
    launcher = running(messages.Welcome(grace_s=7.0))
    launcher.member.signalled(15)
    assert launcher.said(messages.Signalled) == [messages.Signalled(15)]
    assert launcher.calls("halt") == [[Cause("signal", "node1", code=-15), 7.0]]


# The hub


@pytest.mark.parametrize("is_of_token", [False, True])
def test_one_who_is_refused_says_why(is_of_token: bool) -> None:
    launcher = Launcher() if is_of_token else Launcher("linked")
    if is_of_token:
        launcher.member.unlinked("not one of these", is_final=True)
    else:
        launcher.member.received(messages.Refused("not one of these"))
    assert launcher.calls("exit") == [[2, Cause("refused", words="not one of these")]]


def test_one_that_finds_no_hub_says_why() -> None:
    launcher = Launcher()
    launcher.member.unlinked("no answer")
    launcher.wait(700)
    seeks = launcher.calls("seek_hub")
    assert seeks[0] == ["no answer", 595.0]
    assert len(seeks) == 60
    assert launcher.calls("exit") == [
        [69, Cause("absent", words="the hub at node0:29400 (no answer)")]
    ]


def test_a_launcher_without_a_hub_goes_by_what_a_hub_says_by_default() -> None:
    assert messages.Welcome(**Settings(1, 1).for_members()) == messages.Welcome()


def test_what_a_launcher_was_told_otherwise_it_says() -> None:
    launcher = Launcher("linked")
    launcher.member.received(messages.Welcome(differs=("--grace 5, the hub 30",)))
    words = "this node has --grace 5, the hub 30; the hub's value counts"
    assert launcher.calls("print_line") == [[words]]


def test_a_hub_that_is_lost_before_all_have_met_is_looked_for_again() -> None:
    """It may be cut off; where its machine says that nobody is there, it has ended."""
    launcher = Launcher("linked", "welcome")
    launcher.member.unlinked("lost")
    for _ in range(10):
        launcher.now += 6.0
        launcher.member.unlinked("no answer")
    assert launcher.status is None
    launcher.member.linked()
    launcher.member.received(messages.Welcome())
    assert launcher.member.state == member.JOINED
    launcher.member.unlinked("lost")
    launcher.member.unlinked("refused", is_nobody=True)
    assert launcher.calls("exit") == [[69, Cause("lost", words="the hub")]]


def test_one_that_has_given_its_hub_up_hears_it_no_more() -> None:
    launcher = running()
    for _ in range(11):
        launcher.now += 9.0
        launcher.member.tick()
    assert launcher.member.state == member.FENCED
    launcher.member.received(messages.End(0))
    launcher.member.received(messages.Stop(1, Cause("lost"), 1.0))
    assert launcher.status is None
    launcher.member.workers_ended(False)
    assert launcher.status == 69


@pytest.mark.parametrize(("code", "early_s"), [(7, 0.0), (SEGV, 0.1)])
def test_the_way_to_the_hub_is_taken_off_the_time_of_a_failure(code: int, early_s: float) -> None:
    """Half the time from its hello to the welcome, until a beat tells better."""
    launcher = Launcher("linked")
    launcher.now += 0.2
    launcher.member.received(messages.Welcome())
    launcher.member.received(START)
    launcher.member.worker_failed(fails(1, 0, code, age_s=0.3))
    (failed,) = launcher.said(messages.Failed)
    assert (failed.age_s, failed.early_s) == pytest.approx((0.4, early_s))


def test_the_hub_is_told_once_of_silence_and_once_of_words_after_it() -> None:
    launcher = running()
    for is_so in (False, True, True, False, False):
        launcher.member.report_silence(is_so)
    assert launcher.said(messages.Silent) == [messages.Silent(1), messages.Silent(1, False)]
    launcher.member.received(messages.Stop(START.epoch, Cause("lost"), 1.0))
    launcher.member.report_silence(True)
    assert len(launcher.said(messages.Silent)) == 2


# Its workers


def test_an_end_that_comes_while_workers_run_waits_for_theirs() -> None:
    launcher = running()
    launcher.member.received(messages.End(3, Cause("failure", "node0", 0, 3)))
    assert launcher.calls("halt")
    assert launcher.status is None
    launcher.member.workers_ended(False)
    assert launcher.status == 3


def test_what_happens_while_a_rule_acts_waits_for_its_end() -> None:
    """Workers that were not started yet have ended as soon as they are told to."""
    launcher = running(AGAIN)
    launcher.halt = lambda *_: launcher.member.workers_ended(False)  # type: ignore[attr-defined]
    launcher.made.clear()
    launcher.member.unlinked("lost")
    called = [what for what, *_ in launcher.made]
    assert called == ["print_line", "close", "await_hub", "connect", "wake"]


def test_what_a_launcher_cannot_do_keeps_nothing_else_waiting() -> None:
    launcher = running(AGAIN)

    def fail(*_: object) -> None:
        raise OSError("no such process")

    launcher.halt = fail  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="no such"):
        launcher.member.unlinked("lost")
    launcher.made.clear()
    launcher.member.workers_ended(False)
    assert launcher.calls("connect")


def test_nothing_happens_to_one_that_has_ended() -> None:
    launcher = running()
    launcher.member.workers_ended(True)
    launcher.member.received(messages.End(0))
    launcher.made.clear()
    launcher.member.signalled(15)
    launcher.member.received(START)
    launcher.member.unlinked()
    assert {called for called, *_ in launcher.made} <= {"wake"}
