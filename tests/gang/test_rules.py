"""Single rules that generated schedules reach seldom, or say nothing about."""

from __future__ import annotations

from typing import Any

import pytest

from spawnlaunch.gang import hub, member, words
from spawnlaunch.gang import member_records as m
from spawnlaunch.gang.hub_records import RUNNING, STOPPING, Came, Gone, Heard, Hub, Say, Tick
from spawnlaunch.gang.messages import (
    VERSION,
    Begun,
    Cause,
    Done,
    End,
    Failed,
    Hello,
    Idle,
    Refused,
    Signalled,
    Start,
    Stop,
    Welcome,
)
from spawnlaunch.gang.settings import Settings

A_DAY_S = 86400.0


class Gang:
    """A hub, and what it has said to whom; time passes as it is told."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1000.0
        self.hub = Hub(Settings(**settings), since=self.now, told=self.now)
        self.said: dict[int, list[Any]] = {}

    def happens(self, event: Any, after_s: float = 0.0) -> None:
        self.now += after_s
        self.hub, actions = hub.step(self.hub, event, self.now)
        for action in actions:
            if isinstance(action, Say):
                self.said.setdefault(action.conn, []).append(action.message)

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.happens(Tick(), min(hub.due(self.hub, self.now), end - self.now))

    def come(self, conn: int, host: str = "", **more: Any) -> None:
        hello = Hello(VERSION, host or f"node{conn}", f"{conn}", **{"nproc": 1, **more})
        self.happens(Came(conn, hello, f"10.0.0.{conn}", local=conn == 0))

    def of(self, conn: int, kind: type) -> list[Any]:
        return [message for message in self.said.get(conn, []) if isinstance(message, kind)]


class Launcher:
    """A member, and all that it wanted done."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.member = m.Member(Hello(VERSION, "node1", "1", 1), join_s=600.0)
        self.done: list[Any] = []
        self.happens(m.Tick())

    def happens(self, event: Any, after_s: float = 0.0) -> None:
        self.now += after_s
        self.member, actions = member.step(self.member, event, self.now)
        self.done += actions

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end and self.member.state != m.ENDED:
            self.happens(m.Tick(), min(member.due(self.member, self.now), end - self.now))

    def of(self, kind: type) -> list[Any]:
        said = [action.message for action in self.done if isinstance(action, m.Say)]
        return [one for one in (*self.done, *said) if isinstance(one, kind)]

    @property
    def status(self) -> int | None:
        exits = self.of(m.Exit)
        return exits[0].status if exits else None


def test_less_than_half_of_the_last_nodes_begin_nothing() -> None:
    """They could be the smaller part of a gang whose other part has a hub of its own."""
    gang = Gang(least=1, most=4, max_restarts=1, dead_s=A_DAY_S)
    gang.come(0, epoch=5, nodes=4, last=0)
    gang.wait(300)
    assert not gang.of(0, Start)
    gang.come(1, epoch=5, nodes=4, last=1)
    gang.wait(60)
    (start,) = gang.of(0, Start)
    assert (start.epoch, start.nnodes) == (6, 2)


def test_a_node_keeps_its_rank_and_a_spare_takes_the_hole() -> None:
    gang = Gang(least=3, most=3, spares=1, max_restarts=1)
    for conn in range(4):
        gang.come(conn)
    assert [gang.of(conn, Start)[0].node_rank for conn in range(3)] == [0, 1, 2]
    assert gang.of(3, Begun) == [Begun(1, 3)]
    gang.happens(Gone(1, certain=True))
    for conn in (0, 2):
        gang.happens(Heard(conn, Idle(1)))
    gang.wait(2)
    assert {conn: gang.of(conn, Start)[-1].node_rank for conn in (0, 2, 3)} == {0: 0, 2: 2, 3: 1}


def test_files_have_a_place_that_is_new_on_all_nodes_and_stays() -> None:
    gang = Gang(least=2, most=3, max_restarts=1, launch="mine")
    gang.come(0, place=1)
    gang.come(1, place=3)
    gang.wait(31)
    gang.come(2, place=4)  # it sees what the others keep
    for conn in (0, 1):
        gang.happens(Heard(conn, Idle(1)))
    gang.wait(2)
    told = {(start.place, start.launch) for conn in range(3) for start in gang.of(conn, Start)}
    assert (told, gang.hub.epoch) == ({(3, "mine")}, 2)


def test_a_hub_that_has_come_back_keeps_the_place_of_files() -> None:
    gang = Gang(least=2, most=2, max_restarts=1, launch="of another hub", dead_s=A_DAY_S)
    gang.come(0, place=4)
    gang.come(1, place=3, launch="mine", epoch=5, nodes=2, last=1)
    gang.wait(300)
    (start,) = gang.of(0, Start)
    assert (start.epoch, start.place, start.launch) == (6, 3, "mine")


def test_a_launcher_that_was_told_to_end_has_the_others_status_where_the_hub_is_lost() -> None:
    hello = Hello(VERSION, "node1", "1", nproc=1)
    for returns, status in ((False, 69), (True, 143)):
        one = m.Member(hello, join_s=60.0)
        for event in (
            m.Tick(),
            m.Linked(),
            m.Heard(Welcome(returns=returns)),
            m.Heard(Start(1, 1, 2, 1, 2, "10.0.0.1", 29500)),
            m.Told(15),
            m.Unlinked("lost"),
            m.WorkersEnded(False, 29501),
        ):
            one, actions = member.step(one, event, 1000.0)
        (end,) = [action for action in actions if isinstance(action, m.Exit)]
        assert end.status == status


def test_a_victim_is_not_the_cause_where_a_node_was_lost() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    words_of_a_victim = "RuntimeError: Connection closed by peer [10.0.0.1]"
    gang.happens(Heard(0, Failed(1, 0, 1, words=words_of_a_victim)))
    assert gang.hub.phase == STOPPING
    gang.happens(Heard(0, Idle(1)), 1.0)
    gang.happens(Gone(1, certain=False), 9.0)
    (end,) = gang.of(0, End)
    assert (end.status, end.cause.kind, end.cause.host) == (69, "lost", "node1")


def test_one_that_aborts_is_a_victim() -> None:
    """Libraries abort where a peer has gone."""
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.happens(Heard(0, Failed(1, 0, -6)))
    gang.happens(Heard(1, Failed(1, 1, 7)), 1.0)
    for conn in (0, 1):
        gang.happens(Heard(conn, Idle(1)))
    assert [end.status for end in gang.of(0, End)] == [7]


def test_all_who_are_done_end_well_though_one_is_lost_then() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.happens(Heard(1, Done(1)))
    gang.happens(Gone(1, certain=True))
    assert gang.hub.phase == RUNNING
    gang.happens(Heard(0, Done(1)))
    assert gang.of(0, End) == [End(0)]


def test_a_frozen_hub_gives_nobody_up() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.happens(Tick(), A_DAY_S)
    assert gang.hub.phase == RUNNING


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        ({"rank": 0}, "node1 and node0 both have node rank 0"),
        ({"rank": 2}, "node1 has node rank 2, of 2 nodes"),
        ({"told": (("--nnodes", "3"),)}, "node1 has --nnodes 3, the hub 2"),
        ({"nproc": 0}, "node1 has 0 workers"),
    ],
)
def test_why_one_is_refused(hello: dict[str, Any], said: str) -> None:
    gang = Gang(least=2, most=2, told=(("--nnodes", "2"),))
    gang.come(0, rank=0)
    gang.come(1, **hello)
    (refused,) = gang.of(1, Refused)
    assert said in refused.why


def test_a_machine_that_was_started_again_is_no_second_one() -> None:
    gang = Gang(least=2, most=2, max_restarts=1, returns=True)
    gang.come(0, rank=0, boot="a")
    gang.come(1, "host", rank=1, boot="b")
    hello = Hello(VERSION, "host", "another", 1, boot="c", rank=1)
    gang.happens(Came(2, hello, "10.0.0.1"))
    assert not gang.of(2, Refused)
    gang.happens(Heard(0, Idle(1)))
    assert gang.of(2, Start)[0].node_rank == 1


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (Cause("failure", "node3", 7, 9), "rank 7 on node3 failed with status 9"),
        (Cause("failure", "node3", 7, -9), "rank 7 on node3 was killed by signal 9"),
        (Cause("lost", "node3"), "node3 was lost"),
        (Cause("signal", "node3", number=15), "node3 was told to end by signal 15"),
        (Cause("absent", words="node1, node2"), "still missing: node1, node2"),
        (None, "all workers have ended well"),
    ],
)
def test_causes_in_words(cause: Cause | None, said: str) -> None:
    assert words.caused(cause) == said


def test_a_machine_that_was_started_again_is_waited_for_no_more() -> None:
    gang = Gang(least=2, most=2, max_restarts=1, returns=True, grace_s=A_DAY_S, dead_s=A_DAY_S)
    gang.come(0, boot="a")
    gang.come(1, "host", boot="b")
    gang.wait(300)
    gang.happens(Gone(1, certain=False))
    gang.happens(Heard(0, Idle(gang.hub.epoch)))
    gang.happens(Came(2, Hello(VERSION, "host", "another", 1, boot="c"), "10.0.0.1"))
    gang.wait(10)
    assert gang.of(2, Start)


def test_the_status_of_a_signal_by_which_all_die() -> None:
    gang = Gang(least=1, most=1)
    gang.come(0)
    gang.happens(Heard(0, Signalled(15)))
    gang.happens(Heard(0, Idle(1, outcomes=((0, -15), (1, -15)))))
    assert [end.status for end in gang.of(0, End)] == [143]


def test_the_status_of_a_signal() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.happens(Heard(1, Signalled(2)))
    for conn, outcome in ((0, (0, -2)), (1, (1, 0))):
        gang.happens(Heard(conn, Idle(1, outcomes=(outcome,))))
    assert [end.status for end in gang.of(0, End)] == [130]


def test_workers_that_end_alike_after_a_signal_say_the_status() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.happens(Heard(1, Signalled(15)))
    for conn in (0, 1):
        gang.happens(Heard(conn, Idle(1, outcomes=((conn, 85),))))
    assert [end.status for end in gang.of(0, End)] == [85]


def test_a_second_signal_waits_for_nobody() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.happens(Heard(1, Signalled(15)))
    gang.happens(Heard(1, Signalled(15, again=True)))
    assert [stop.grace_s for stop in gang.of(0, Stop)] == [30.0, 0.0]


def test_a_hub_that_may_have_returned_waits_for_workers_of_before() -> None:
    """A node that is cut off may run them until it has noticed, and its grace is over."""
    gang = Gang(least=1, most=2, max_restarts=1, returns=True, grace_s=100, dead_s=A_DAY_S)
    gang.come(0)
    gang.wait(110)
    assert not gang.of(0, Start)
    gang.wait(10)
    assert gang.of(0, Start)


def test_the_budget_is_full_again_after_a_window_of_health() -> None:
    gang = Gang(least=1, most=1, max_restarts=1, window_s=100, dead_s=A_DAY_S)
    gang.come(0)
    for epoch, lasts_s in enumerate((1, 200, 1), start=1):
        assert [start.epoch for start in gang.of(0, Start)] == list(range(1, epoch + 1))
        gang.wait(lasts_s)
        gang.happens(Heard(0, Failed(epoch, 0, 1)))
        gang.happens(Heard(0, Idle(epoch, port=20000 + epoch)))
        gang.wait(2)
    assert [end.status for end in gang.of(0, End)] == [1]


def test_a_hub_that_is_told_to_end_at_once_stays_for_those_who_are_near() -> None:
    """They would seek it until join_timeout."""
    gang = Gang(least=3, most=3)
    gang.come(0, leaving=15)
    gang.come(1)
    for conn in (0, 1):
        assert [end.status for end in gang.of(conn, End)] == [143]
        gang.happens(Gone(conn, certain=True))
    gang.wait(5)
    assert not hub.is_over(gang.hub, gang.now)
    gang.come(2)
    assert [end.status for end in gang.of(2, End)] == [143]
    assert hub.is_over(gang.hub, gang.now)


def test_a_hub_whose_own_launcher_comes_to_end_ends_all_that_have_begun() -> None:
    gang = Gang(least=1, most=2, last_call_s=1)
    gang.come(1)
    gang.wait(2)
    assert gang.of(1, Start)
    gang.come(0, leaving=15)
    assert [stop.cause.kind for stop in gang.of(1, Stop)] == ["signal"]
    gang.happens(Heard(1, Idle(1)))
    assert [gang.of(conn, End)[0].status for conn in (0, 1)] == [143, 143]


def test_a_hub_does_not_stay_for_ever() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0, leaving=15)
    assert 0 < hub.due(gang.hub, gang.now) <= 10
    gang.wait(11)
    assert hub.is_over(gang.hub, gang.now)


def test_a_hub_that_was_waited_for_long_ends_at_once() -> None:
    gang = Gang(least=2, most=2, dead_s=A_DAY_S)
    gang.come(0)
    gang.wait(40)
    assert not hub.is_over(gang.hub, gang.now)
    gang.happens(Heard(0, Signalled(15)))
    assert hub.is_over(gang.hub, gang.now)


@pytest.mark.parametrize("is_greeting", [False, True])
def test_a_launcher_that_is_told_to_end_as_it_comes_tells_the_hub(is_greeting: bool) -> None:
    launcher = Launcher()
    if is_greeting:
        launcher.happens(m.Linked())
    launcher.happens(m.Told(15))
    assert launcher.status is None
    if is_greeting:
        assert launcher.of(Signalled) == [Signalled(15)]
    else:
        launcher.happens(m.Linked())
        assert [hello.leaving for hello in launcher.of(Hello)] == [15]
    launcher.happens(m.Heard(Welcome()))
    launcher.happens(m.Heard(End(143)))
    assert launcher.status == 143


def test_a_launcher_that_is_told_to_end_tries_once_more_to_find_a_hub() -> None:
    launcher = Launcher()
    launcher.happens(m.Unlinked("refused"))
    assert len(launcher.of(m.Connect)) == 1
    launcher.happens(m.Told(2))
    assert len(launcher.of(m.Connect)) == 2
    launcher.happens(m.Unlinked("refused"))
    assert launcher.status == 130


@pytest.mark.parametrize("is_greeting", [False, True])
def test_a_launcher_that_is_told_to_end_twice_waits_for_no_hub(is_greeting: bool) -> None:
    launcher = Launcher()
    if is_greeting:
        launcher.happens(m.Linked())
    launcher.happens(m.Told(15))
    launcher.happens(m.Told(15))
    assert launcher.status == 143


def test_a_launcher_that_is_told_to_end_waits_for_no_hub() -> None:
    """That does not answer. One that was frozen itself gives it the whole time."""
    launcher = Launcher()
    launcher.happens(m.Told(15))
    launcher.wait(9)
    launcher.happens(m.Linked())
    assert launcher.status is None
    launcher.wait(4)
    assert launcher.status is None
    launcher.wait(2)
    assert launcher.status == 143


def test_one_who_is_refused_says_why() -> None:
    launcher = Launcher()
    launcher.happens(m.Linked())
    launcher.happens(m.Heard(Refused("another version")))
    assert launcher.of(m.Exit) == [m.Exit(2, Cause("refused", words="another version"))]


def test_one_whose_token_is_another_says_why() -> None:
    launcher = Launcher()
    launcher.happens(m.Unlinked("another token", is_final=True))
    assert launcher.of(m.Exit) == [m.Exit(2, Cause("refused", words="another token"))]


def test_what_a_launcher_was_told_otherwise_is_said_on_both_nodes() -> None:
    gang = Gang(least=2, most=2, told=(("--grace", "30"),))
    gang.come(0)
    gang.come(1, told=(("--grace", "5"),))
    (welcome,) = gang.of(1, Welcome)
    assert welcome.differs == ("--grace 5, the hub 30",)
    launcher = Launcher()
    launcher.happens(m.Linked())
    launcher.happens(m.Heard(welcome))
    assert m.Note("differs", welcome.differs) in launcher.done


def running() -> tuple[Launcher, Start]:
    """A launcher whose workers run."""
    start = Start(1, 0, 2, 0, 2, "10.0.0.0", 20000)
    launcher = Launcher()
    for event in (m.Linked(), m.Heard(Welcome()), m.Heard(start)):
        launcher.happens(event)
    assert launcher.of(m.Launch) == [m.Launch(start)]
    return launcher, start


def test_an_end_that_comes_while_workers_run_waits_for_theirs() -> None:
    launcher, _ = running()
    launcher.happens(m.Heard(End(3, Cause("failure", "node0", 0, 3))))
    assert launcher.of(m.Halt)
    assert launcher.status is None
    launcher.happens(m.WorkersEnded(well=False))
    assert launcher.status == 3


def test_nothing_happens_to_one_that_has_ended() -> None:
    launcher, start = running()
    launcher.happens(m.WorkersEnded(well=True))
    launcher.happens(m.Heard(End(0)))
    before = len(launcher.done)
    for event in (m.Told(15), m.Heard(start), m.Unlinked()):
        launcher.happens(event)
    assert len(launcher.done) == before


def test_one_that_has_given_its_hub_up_hears_it_no_more() -> None:
    launcher, _ = running()
    launcher.happens(m.Tick(), 9.0)
    for _ in range(10):
        launcher.happens(m.Tick(), 9.0)
    assert launcher.member.state == m.FENCED
    launcher.happens(m.Heard(End(0)))
    launcher.happens(m.Heard(Stop(1, Cause("lost"), 1.0)))
    assert launcher.status is None
    launcher.happens(m.WorkersEnded(well=False))
    assert launcher.status == 69


def test_a_second_hello_on_a_connection_changes_nothing() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    before = gang.hub
    gang.happens(Heard(0, Hello(VERSION, "other", "other", 7, epoch=5)))
    assert gang.hub.nodes[0].hello == before.nodes[0].hello
    assert gang.hub.floor == 0


def test_workers_that_end_untold_end_all() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.happens(Heard(1, Idle(1)))
    assert [stop.cause.kind for stop in gang.of(0, Stop)] == ["lost"]


def test_a_failure_with_a_final_status_is_not_tried_again() -> None:
    gang = Gang(least=2, most=2, max_restarts=3, final=frozenset({3}))
    gang.come(0)
    gang.come(1)
    gang.happens(Heard(1, Failed(1, 1, 3)))
    for conn in (0, 1):
        gang.happens(Heard(conn, Idle(1)))
    assert [end.status for end in gang.of(0, End)] == [3]
