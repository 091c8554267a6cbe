"""Single rules that generated schedules reach seldom, or say nothing about."""

from __future__ import annotations

import itertools
import re
from random import Random
from typing import Any

import pytest

from spawnlaunch import failures
from spawnlaunch.failures import Cause
from spawnlaunch.gang import hub, member, roster
from spawnlaunch.gang.messages import (
    VERSION,
    Beat,
    Begun,
    Done,
    End,
    Failed,
    Hello,
    Idle,
    Refused,
    Signalled,
    Silent,
    Start,
    Stop,
    Talking,
    Waiting,
    Welcome,
)
from spawnlaunch.gang.phases import JOINING, NEAR_S, RUNNING, STOPPING
from spawnlaunch.gang.settings import Settings
from tests.gang.hosts import Calls

A_DAY_S = 86400.0


def fails(epoch: int, rank: int, code: int, words: str = "", oom: str = "", **s: float) -> Failed:
    cause = failures.Cause("failure", rank=rank, code=code, words=words, oom=oom)
    return Failed(epoch, cause, **s)


class Gang(Calls):
    """A hub, and all that it has called; time passes as it is told."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.now = 1000.0
        self.hub = hub.Hub(Settings(**settings), self, lambda: self.now, self.wake)

    def hears(self, conn: int, message: Any, after_s: float = 0.0) -> None:
        self.now += after_s
        self.hub.heard(conn, message)

    def loses(self, conn: int, is_certain: bool, after_s: float = 0.0) -> None:
        self.now += after_s
        self.hub.gone(conn, is_certain)

    def sleeps(self, seconds: float) -> None:
        self.now += seconds
        self.hub.tick()

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            due_s = self.due_s
            self.sleeps(end - self.now if due_s is None else min(due_s, end - self.now))
            for conn in [*self.hub.nodes]:
                self.hears(conn, Beat(1))

    @property
    def due_s(self) -> float | None:
        """In how many seconds it wants to look again."""
        self.hub.tick()
        due_s: float | None = self.calls("wake")[-1][0]
        return due_s

    def come(self, conn: int, host: str = "", **more: Any) -> None:
        hello = Hello(VERSION, host or f"node{conn}", f"{conn}", **{"nproc": 1, **more})
        self.hub.came(conn, hello, f"10.0.0.{conn}", is_local=conn == 0)

    def of(self, conn: int, kind: type) -> list[Any]:
        said = [message for to, message in self.calls("say") if to == conn]
        return [message for message in said if isinstance(message, kind)]


class Launcher(Calls):
    """A member, and all that it has called."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        hello = Hello(VERSION, "node1", "1", 1)
        self.member = member.Member(hello, 600.0, self, self, lambda: self.now, self.wake)
        self.member.begin()

    def wait(self, seconds: float) -> None:
        """So long, as its clock tells it."""
        end = self.now + seconds
        while self.now < end and self.member.state != member.ENDED:
            self.now += min(self.calls("wake")[-1][0], end - self.now)
            self.member.tick()

    def said(self, kind: type) -> list[Any]:
        return [one for (one,) in self.calls("say") if isinstance(one, kind)]

    @property
    def status(self) -> int | None:
        exits = self.calls("exit")
        return exits[0][0] if exits else None


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


def test_another_hub_gives_all_the_node_ranks_that_they_had_and_counts_on() -> None:
    gang = Gang(least=2, most=2, max_restarts=1, return_s=60.0, dead_s=A_DAY_S)
    gang.come(0, epoch=5, nodes=2, last=1, total=4)
    gang.come(1, epoch=5, nodes=2, last=0, total=3)
    gang.wait(60)
    starts = [gang.of(conn, Start)[0] for conn in (0, 1)]
    assert [(start.epoch, start.node_rank, start.total) for start in starts] == [
        (6, 1, 5),
        (6, 0, 5),
    ]


def test_starts_after_the_first_are_counted() -> None:
    gang = Gang(least=1, most=1, max_restarts=2)
    gang.come(0)
    for epoch in (1, 2):
        gang.hears(0, fails(epoch, 0, 1))
        gang.hears(0, Idle(epoch, port=20000 + epoch))
    assert [start.total for start in gang.of(0, Start)] == [0, 1, 2]


def test_a_spare_stays_one_where_nobody_was_lost() -> None:
    gang = Gang(least=2, most=2, spares=1, max_restarts=1)
    for conn in range(3):
        gang.come(conn)
    gang.hears(1, fails(1, 1, 1))
    for conn in (0, 1):
        gang.hears(conn, Idle(1))
    gang.wait(2)
    assert {conn: gang.of(conn, Start)[-1].node_rank for conn in (0, 1)} == {0: 0, 1: 1}
    assert [begun.epoch for begun in gang.of(2, Begun)] == [1, 2]


def test_each_has_a_place_whatever_node_ranks_were_given() -> None:
    """Those with 2 and 3 have begun as 0 and 1."""
    gang = Gang(least=2, most=4, max_restarts=1, last_call_s=1.0)
    for conn in (2, 3):
        gang.come(conn, rank=conn)
    gang.wait(2)
    gang.come(0, rank=0)
    for conn in (2, 3):
        gang.hears(conn, Idle(1))
    gang.wait(2)
    assert {conn: gang.of(conn, Start)[-1].node_rank for conn in (2, 3, 0)} == {2: 0, 3: 1, 0: 2}


def test_a_node_keeps_its_rank_and_a_spare_takes_the_hole() -> None:
    gang = Gang(least=3, most=3, spares=1, max_restarts=1)
    for conn in range(4):
        gang.come(conn)
    assert [gang.of(conn, Start)[0].node_rank for conn in range(3)] == [0, 1, 2]
    assert gang.of(3, Begun) == [Begun(1, 3)]
    gang.loses(1, is_certain=True)
    for conn in (0, 2):
        gang.hears(conn, Idle(1))
    gang.wait(2)
    assert {conn: gang.of(conn, Start)[-1].node_rank for conn in (0, 2, 3)} == {0: 0, 2: 2, 3: 1}


def test_who_comes_back_has_the_node_rank_that_it_says() -> None:
    gang = Gang(least=2, most=4, max_restarts=3, return_s=60.0)
    for conn in range(4):
        gang.come(conn, rank=conn)
    for conn in (1, 2, 3):
        gang.loses(conn, is_certain=True)
    gang.hears(0, Idle(1))
    gang.come(12, "another", rank=2)
    gang.come(13, "node3", rank=3)
    gang.wait(2)
    assert [gang.of(conn, Start)[-1].nnodes for conn in (0, 12, 13)] == [3, 3, 3]
    assert [gang.of(conn, Start)[-1].node_rank for conn in (0, 12, 13)] == [0, 2, 1]


def test_workers_of_a_launcher_that_is_killed_have_a_moment_to_die() -> None:
    """The kernel closes its connection before it kills them."""
    gang = Gang(least=2, most=2, spares=1, max_restarts=1)
    for conn in range(3):
        gang.come(conn)
    gang.loses(1, is_certain=True)
    gang.hears(0, Idle(1))
    assert not gang.of(2, Start)
    gang.wait(0.4)
    assert not gang.of(2, Start)
    gang.wait(2)
    assert gang.of(2, Start)


def test_those_who_are_lost_are_waited_for_by_name() -> None:
    """Who comes meanwhile knows of the epochs, and waits as long as the others for a lost hub."""
    gang = Gang(least=3, most=3, max_restarts=3, return_s=60.0, dead_s=A_DAY_S)
    for conn in range(3):
        gang.come(conn)
    for conn in (1, 2):
        gang.loses(conn, is_certain=True)
    gang.hears(0, Idle(1))
    assert gang.of(0, Waiting) == [Waiting("node1, node2", 60.0)]
    gang.come(11, "node1")
    assert gang.of(11, Begun) == [Begun(1, 3)]
    gang.wait(55)
    assert set(gang.of(0, Waiting)[1:]) == {Waiting("node2")}
    assert not gang.of(0, End)
    gang.wait(10)
    (end,) = gang.of(0, End)
    assert (end.status, end.cause.words) == (69, "node2; nobody has come back within 60 s")


@pytest.mark.parametrize("is_late", [False, True])
def test_what_to_type_is_said_for_each_that_is_lost(is_late: bool) -> None:
    """Also for one that is lost while the others wait already."""
    gang = Gang(least=3, most=3, max_restarts=3, return_s=60.0)
    for conn in range(3):
        gang.come(conn, rank=conn)
    gang.loses(1, is_certain=True)
    for conn in (0, 2) if is_late else (0,):
        gang.hears(conn, Idle(1))
    gang.loses(2, is_certain=True)
    gang.wait(2)
    lines = [line for (line,) in gang.calls("tell")]
    for rank in (1, 2):
        assert any(line.endswith(f"<{rank} 1>") and f"node{rank}" in line for line in lines), lines


def test_any_may_come_where_those_who_are_missing_have_left_by_themselves() -> None:
    """One was lost, and another has come for it; then two are told to end."""
    gang = Gang(least=3, most=4, max_restarts=3, return_s=60.0)
    for conn in range(4):
        gang.come(conn)
    gang.loses(3, is_certain=True)
    gang.come(13, "another")
    for conn in range(3):
        gang.hears(conn, Idle(1))
    for conn in (1, 2):
        gang.hears(conn, Signalled(15))
        assert [end.status for end in gang.of(conn, End)] == [143]
    assert not gang.of(0, End)
    (line,) = [line for (line,) in gang.calls("tell") if "start it there again" in line]
    assert line.endswith("<-1 0>")


@pytest.mark.parametrize("is_at_once", [True, False])
def test_one_that_leaves_before_there_are_enough_ends_alone(is_at_once: bool) -> None:
    """The others wait for more, if they can do without it."""
    gang = Gang(least=3, most=4)
    gang.come(0)
    gang.come(1, leaving=15 if is_at_once else 0)
    if not is_at_once:
        gang.hears(1, Signalled(15))
    assert [end.status for end in gang.of(1, End)] == [143]
    assert gang.hub.phase == JOINING
    for conn in (2, 3, 4):
        gang.come(conn)
    gang.wait(40)
    assert [start.nnodes for start in gang.of(0, Start)] == [4]


def test_a_signal_for_all_nodes_may_come_to_each_at_its_time() -> None:
    """They do not begin again without the first that heard of it."""
    gang = Gang(least=1, most=3)
    for conn in range(3):
        gang.come(conn)
    gang.wait(100)
    gang.hears(1, Signalled(15))
    for conn in range(3):
        gang.hears(conn, Idle(1, outcomes=((conn, 85),)))
    for conn in (2, 0):
        gang.hears(conn, Signalled(15), 0.2)
    assert [gang.of(conn, End)[0].status for conn in range(3)] == [85, 85, 85]


def test_nobody_is_waited_for_where_nobody_comes_back() -> None:
    gang = Gang(least=2, most=2, max_restarts=3)
    for conn in range(2):
        gang.come(conn)
    gang.loses(1, is_certain=True)
    gang.hears(0, Idle(1))
    assert [end.status for end in gang.of(0, End)] == [69]


def test_one_that_comes_back_before_its_end_is_heard_is_not_refused() -> None:
    """Its workers may die slowly, and their connection ends with them."""
    gang = Gang(least=2, most=2, max_restarts=1, return_s=60.0)
    for conn in range(2):
        gang.come(conn, rank=conn)
    hello = Hello(VERSION, "node1", "another", 1, rank=1)
    gang.hub.came(2, hello, "10.0.0.1")
    assert not gang.of(2, Refused)
    gang.loses(1, is_certain=True)
    gang.hears(0, Idle(1))
    gang.wait(2)
    assert [start.node_rank for start in gang.of(2, Start)] == [1]


def test_a_hub_that_is_started_again_waits_from_the_first_who_tells_of_it() -> None:
    """Who was cut off may come when those who were not have waited for long."""
    gang = Gang(least=3, most=3, max_restarts=3, return_s=60.0, dead_s=A_DAY_S)
    gang.come(0)
    gang.wait(100)
    gang.come(1, epoch=2, nodes=3, last=1)
    gang.wait(50)
    assert not gang.of(1, End)
    gang.wait(20)
    assert [end.status for end in gang.of(1, End)] == [69]


def test_a_hub_is_no_more_started_again_than_is_allowed() -> None:
    gang = Gang(least=2, most=2, max_restarts=1, return_s=60.0)
    gang.come(0)
    gang.come(1, epoch=2, nodes=2, last=1, used=1)
    (end,) = gang.of(1, End)
    assert (end.status, end.cause.in_words) == (69, "the hub before was lost")


def test_files_have_a_place_that_is_new_on_all_nodes_and_stays() -> None:
    gang = Gang(least=2, most=3, max_restarts=1, launch="mine")
    gang.come(0, place=1)
    gang.come(1, place=3)
    gang.wait(31)
    gang.come(2, place=4)  # it sees what the others keep
    for conn in (0, 1):
        gang.hears(conn, Idle(1))
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
    for return_s, status in ((0.0, 69), (60.0, 143)):
        launcher, _ = running(Welcome(return_s=return_s))
        launcher.member.told(15)
        launcher.member.unlinked("lost")
        launcher.member.workers_ended(False, 29501)
        assert launcher.status == status


def test_a_victim_is_not_the_cause_where_a_node_was_lost() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    words_of_a_victim = "RuntimeError: Connection closed by peer [10.0.0.1]"
    gang.hears(0, fails(1, 0, 1, words=words_of_a_victim))
    assert gang.hub.phase == STOPPING
    gang.hears(0, Idle(1), 1.0)
    gang.loses(1, is_certain=False, after_s=9.0)
    (end,) = gang.of(0, End)
    assert (end.status, end.cause.kind, end.cause.host) == (69, "lost", "node1")


def two_that_fail(one: Failed, other: Failed, after_s: float) -> Cause:
    """The cause of which the launchers are told after two failures, by the order of their news."""
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.hears(one.cause.rank, one)
    gang.hears(other.cause.rank, other, after_s)
    for conn in (0, 1):
        gang.hears(conn, Idle(1))
    (end,) = gang.of(0, End)
    cause: Cause = end.cause
    return cause


ABRT, SEGV, KILL = -6, -11, -9
CLOSED = "what(): Connection closed by peer [10.0.0.2]:4711"


@pytest.mark.parametrize(
    ("one", "other", "after_s", "first"),
    [
        # Libraries abort where a peer has gone, and the news of that peer may be later.
        pytest.param(fails(1, 0, ABRT), fails(1, 1, 7, age_s=1.5), 1.0, 1, id="news is later"),
        pytest.param(fails(1, 0, ABRT, words=CLOSED), fails(1, 1, 7), 1.0, 1, id="its words"),
        pytest.param(fails(1, 0, ABRT), fails(1, 1, 7, early_s=2.0), 1.0, 1, id="seen dying"),
        pytest.param(fails(1, 0, 7), fails(1, 1, ABRT, early_s=9.0), 0.1, 0, id="abort is dying"),
        # An abort is no victim by itself.
        pytest.param(fails(1, 0, 7), fails(1, 1, ABRT, age_s=0.16), 0.1, 1, id="abort is first"),
        pytest.param(fails(1, 0, 7, words=CLOSED), fails(1, 1, ABRT), 0.1, 1, id="abort of peer"),
        # What crashes is seldom a victim, and takes a while to die.
        pytest.param(fails(1, 0, 7), fails(1, 1, SEGV, age_s=0.2), 0.1, 1, id="crash is first"),
        pytest.param(fails(1, 0, 7), fails(1, 1, SEGV), 0.05, 1, id="crash within the time"),
        pytest.param(fails(1, 0, 7), fails(1, 1, SEGV, early_s=9.0), 5.0, 1, id="it was dying"),
        pytest.param(fails(1, 0, 7), fails(1, 1, SEGV), 0.2, 0, id="crash comes later"),
        pytest.param(fails(1, 0, 7), fails(1, 1, KILL), 0.05, 0, id="killed by somebody"),
        pytest.param(fails(1, 0, 7), fails(1, 1, 8, oom="oom"), 0.05, 0, id="not its own"),
    ],
)  # fmt: skip
def test_which_of_two_failures_is_the_first(
    one: Failed, other: Failed, after_s: float, first: int
) -> None:
    assert two_that_fail(one, other, after_s).rank == first


def test_memory_that_runs_out_goes_before_an_exit() -> None:
    assert two_that_fail(fails(1, 0, 7), fails(1, 1, KILL, oom="oom"), 0.05).rank == 1


def test_a_failure_between_two_others_changes_nothing() -> None:
    """Of each kind the earliest is kept, whatever comes between."""
    gang = Gang(least=1, most=1)
    gang.come(0, nproc=4)
    for rank, code in enumerate((7, 8, SEGV, ABRT)):
        gang.hears(0, fails(1, rank, code, age_s=0.5 if code == SEGV else 0.0), 0.1)
    gang.hears(0, Idle(1))
    assert [(end.status, end.cause.rank) for end in gang.of(0, End)] == [(139, 2)]


def test_one_that_may_have_been_earlier_is_kept_beside_those_that_were_later() -> None:
    """Rank 0 aborts because of rank 2, which is still dying as others fail of what it did."""
    dying = fails(1, 2, 7, early_s=9.0)
    for order in itertools.permutations((fails(1, 0, ABRT, age_s=0.4), fails(1, 1, 8), dying)):
        gang = Gang(least=1, most=1)
        gang.come(0, nproc=3)
        for failed in order:
            gang.hears(0, failed)
        gang.hears(0, Idle(1))
        assert [end.cause.rank for end in gang.of(0, End)] == [2], order


def test_a_launcher_takes_the_way_to_the_hub_off() -> None:
    """Half the time from its hello to the welcome, until a beat tells better."""
    for code, early_s in ((7, 0.0), (SEGV, 0.1)):
        launcher = Launcher()
        launcher.member.linked()
        launcher.now += 0.2
        launcher.member.heard(Welcome())
        launcher.member.heard(Start(1, 0, 2, 0, 2, "10.0.0.0", 20000))
        launcher.member.worker_failed(fails(1, 0, code, age_s=0.3))
        (failed,) = launcher.said(Failed)
        assert (failed.age_s, failed.early_s) == pytest.approx((0.4, early_s))


def test_all_who_are_done_end_well_though_one_is_lost_then() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.hears(1, Done(1))
    gang.loses(1, is_certain=True)
    assert gang.hub.phase == RUNNING
    gang.hears(0, Done(1))
    assert gang.of(0, End) == [End(0)]


def three_of_whom_one_may_be_cut_off() -> Gang:
    """All are here; nothing was heard of the second one for some beats."""
    gang = Gang(least=3, most=3)
    gang.come(0)
    gang.come(1)
    for _ in range(3):
        gang.hears(0, Beat(1), 9.0)
    gang.come(2)
    return gang


def test_one_that_may_be_cut_off_is_heard_before_all_begin() -> None:
    """As the last one comes: else it gave the hub up at that moment, and all were lost with it."""
    gang = three_of_whom_one_may_be_cut_off()
    assert gang.hub.phase == JOINING
    gang.hears(1, Beat(1), 1.0)
    assert gang.hub.phase == JOINING, "what was sent to it may not be there"
    gang.wait(gang.hub.settings.lost_after_s)
    assert gang.hub.phase == RUNNING


def test_a_frozen_hub_gives_nobody_up() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.sleeps(A_DAY_S)
    assert gang.hub.phase == RUNNING


def test_the_time_of_a_launch_does_not_stand_while_the_hub_sleeps() -> None:
    gang = Gang(least=2, most=2, timeout_s=100.0)
    gang.wait(50.0)
    gang.come(0)
    gang.come(1)
    gang.sleeps(99.0)
    assert gang.hub.phase == RUNNING
    assert gang.due_s == pytest.approx(1.0)
    gang.sleeps(1.0)
    assert gang.hub.phase == STOPPING
    assert gang.hub.cause
    assert gang.hub.cause.kind == "timeout"


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
    gang = Gang(least=2, most=2, max_restarts=1, return_s=60.0, returns=True)
    gang.come(0, rank=0, boot="a")
    gang.come(1, "host", rank=1, boot="b")
    hello = Hello(VERSION, "host", "another", 1, boot="c", rank=1)
    gang.hub.came(2, hello, "10.0.0.1")
    assert not gang.of(2, Refused)
    gang.hears(0, Idle(1))
    assert gang.of(2, Start)[0].node_rank == 1


@pytest.mark.parametrize(
    ("addr", "is_it"), [("10.0.0.1", True), ("10.0.0.9", False)], ids=["it", "one of its name"]
)
def test_a_machine_that_was_started_again_is_waited_for_no_more(addr: str, is_it: bool) -> None:
    times = {"grace_s": A_DAY_S, "dead_s": A_DAY_S}
    gang = Gang(least=2, most=2, max_restarts=1, return_s=60.0, returns=True, **times)
    gang.come(0, boot="a")
    gang.come(1, "host", boot="b")
    gang.wait(300)
    gang.loses(1, is_certain=False)
    gang.hears(0, Idle(gang.hub.epoch))
    gang.hub.came(2, Hello(VERSION, "host", "another", 1, boot="c"), addr)
    gang.wait(10)
    assert bool(gang.of(2, Start)) == is_it


def test_the_status_of_a_signal_by_which_all_die() -> None:
    gang = Gang(least=1, most=1)
    gang.come(0)
    gang.hears(0, Signalled(15))
    gang.hears(0, Idle(1, outcomes=((0, -15), (1, -15))))
    assert [end.status for end in gang.of(0, End)] == [143]


def test_the_status_of_a_signal() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.hears(1, Signalled(2))
    for conn, outcome in ((0, (0, -2)), (1, (1, 0))):
        gang.hears(conn, Idle(1, outcomes=(outcome,)))
    assert [end.status for end in gang.of(0, End)] == [130]


def test_workers_that_end_alike_after_a_signal_say_the_status() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.hears(1, Signalled(15))
    for conn in (0, 1):
        gang.hears(conn, Idle(1, outcomes=((conn, 85),)))
    assert [end.status for end in gang.of(0, End)] == [85]


def test_a_second_signal_waits_for_nobody() -> None:
    """Of whichever node it is; the first is the cause all the same."""
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.hears(1, Signalled(15))
    gang.hears(0, Signalled(2, again=True))
    stops = gang.of(0, Stop)
    assert [stop.grace_s for stop in stops] == [30.0, 0.0]
    assert [(stop.cause.host, stop.cause.code) for stop in stops] == [("node1", -15)] * 2


def test_a_hub_that_may_have_returned_waits_for_workers_of_before() -> None:
    """A node that is cut off may run them until it has noticed, and its grace is over."""
    gang = Gang(
        least=1, most=2, max_restarts=1, return_s=60.0, returns=True, grace_s=100, dead_s=A_DAY_S
    )
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
        gang.hears(0, fails(epoch, 0, 1))
        gang.hears(0, Idle(epoch, port=20000 + epoch))
        gang.wait(2)
    assert [end.status for end in gang.of(0, End)] == [1]


def test_a_hub_that_is_told_to_end_at_once_stays_for_those_who_are_near() -> None:
    """They would seek it until join_timeout."""
    gang = Gang(least=3, most=3)
    gang.come(0, leaving=15)
    assert "2 of 3 nodes" in gang.calls("tell")[-1][0]
    gang.come(1)
    assert gang.calls("linger")
    for conn in (0, 1):
        assert [end.status for end in gang.of(conn, End)] == [143]
        gang.loses(conn, is_certain=True)
    gang.wait(5)
    assert not gang.hub.is_over
    gang.come(2)
    assert [end.status for end in gang.of(2, End)] == [143]
    assert gang.hub.is_over


def test_those_who_are_near_are_named_where_all_are_known() -> None:
    gang = Gang(least=3, most=3, expected=("node0", "node1", "node2"))
    gang.come(0, leaving=15)
    assert gang.calls("tell")[-1][0].endswith("node1, node2")


def test_all_have_some_seconds_to_hear_the_end() -> None:
    """And no more: one that is frozen does not keep the hub."""
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    for conn in (0, 1):
        assert not gang.calls("linger")
        gang.hears(conn, Done(1))
    assert gang.calls("linger")


def test_a_hub_whose_own_launcher_comes_to_end_ends_all_that_have_begun() -> None:
    gang = Gang(least=1, most=2, last_call_s=1)
    gang.come(1)
    gang.wait(2)
    assert gang.of(1, Start)
    gang.come(0, leaving=15)
    assert [stop.cause.kind for stop in gang.of(1, Stop)] == ["signal"]
    gang.hears(1, Idle(1))
    assert [gang.of(conn, End)[0].status for conn in (0, 1)] == [143, 143]


def test_a_hub_does_not_stay_for_ever() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0, leaving=15)
    assert gang.due_s
    assert 0 < gang.due_s <= 10
    gang.wait(11)
    assert gang.hub.is_over


def test_a_hub_that_takes_the_place_of_another_ends_at_once() -> None:
    gang = Gang(least=2, most=2, max_restarts=1, return_s=60.0)
    gang.come(0, epoch=1, nodes=2, last=1)
    gang.hears(0, Signalled(15))
    assert gang.hub.is_over


def test_a_hub_that_was_waited_for_long_ends_at_once() -> None:
    gang = Gang(least=2, most=2, dead_s=A_DAY_S)
    gang.come(0)
    gang.wait(40)
    assert not gang.hub.is_over
    gang.hears(0, Signalled(15))
    assert gang.hub.is_over


@pytest.mark.parametrize("is_greeting", [False, True])
def test_a_launcher_that_is_told_to_end_as_it_comes_tells_the_hub(is_greeting: bool) -> None:
    launcher = Launcher()
    if is_greeting:
        launcher.member.linked()
    launcher.member.told(15)
    assert launcher.status is None
    assert len(launcher.calls("connect")) == 1, "it is on its way already"
    if is_greeting:
        assert launcher.said(Signalled) == [Signalled(15)]
    else:
        launcher.member.linked()
        assert [hello.leaving for hello in launcher.said(Hello)] == [15]
    launcher.member.heard(Welcome())
    launcher.member.heard(End(143))
    assert launcher.status == 143


def test_a_launcher_that_is_told_to_end_looks_for_the_hub_some_seconds_longer() -> None:
    """The others, who are on their way too, would wait for it."""
    launcher = Launcher()
    launcher.member.unlinked("refused")
    assert len(launcher.calls("connect")) == 1
    launcher.member.told(2)
    assert len(launcher.calls("connect")) == 2
    launcher.member.unlinked("refused")
    launcher.wait(member.WORD_S - 1)
    assert (launcher.status, len(launcher.calls("connect"))) == (None, 3)
    launcher.now += 2.0
    launcher.member.unlinked("refused")
    assert launcher.status == 130


@pytest.mark.parametrize("is_greeting", [False, True])
def test_a_launcher_that_is_told_to_end_twice_waits_for_no_hub(is_greeting: bool) -> None:
    launcher = Launcher()
    if is_greeting:
        launcher.member.linked()
    launcher.member.told(15)
    launcher.member.told(15)
    assert launcher.status == 143


def test_a_launcher_that_is_told_to_end_waits_for_no_hub() -> None:
    """That does not answer. One that was frozen itself gives it the whole time."""
    launcher = Launcher()
    launcher.member.told(15)
    launcher.wait(9)
    launcher.member.linked()
    assert launcher.status is None
    launcher.wait(4)
    assert launcher.status is None
    launcher.wait(1)
    assert launcher.status == 143


def test_one_who_is_refused_says_why() -> None:
    launcher = Launcher()
    launcher.member.linked()
    launcher.member.heard(Refused("another version"))
    assert launcher.calls("exit") == [[2, Cause("refused", words="another version")]]


def test_one_whose_token_is_another_says_why() -> None:
    launcher = Launcher()
    launcher.member.unlinked("another token", is_final=True)
    assert launcher.calls("exit") == [[2, Cause("refused", words="another token")]]


def test_a_launcher_without_a_hub_goes_by_what_a_hub_says_by_default() -> None:
    assert Welcome(**Settings(1, 1).for_members()) == Welcome()


def test_what_a_launcher_was_told_otherwise_is_said_on_both_nodes() -> None:
    gang = Gang(least=2, most=2, told=(("--grace", "30"),))
    gang.come(0)
    gang.come(1, told=(("--grace", "5"),))
    (welcome,) = gang.of(1, Welcome)
    assert welcome.differs == ("--grace 5, the hub 30",)
    launcher = Launcher()
    launcher.member.linked()
    launcher.member.heard(welcome)
    told = "this node has --grace 5, the hub 30; the hub's value counts"
    assert launcher.calls("tell") == [[told]]


def running(welcome: Welcome | None = None) -> tuple[Launcher, Start]:
    """A launcher whose workers run."""
    start = Start(1, 0, 2, 0, 2, "10.0.0.0", 20000)
    launcher = Launcher()
    launcher.member.linked()
    launcher.member.heard(welcome or Welcome())
    launcher.member.heard(start)
    assert launcher.calls("launch") == [[start]]
    return launcher, start


def test_what_happens_while_a_rule_acts_waits_for_its_end() -> None:
    """Workers that were not started yet have ended as soon as they are told to."""
    launcher, _ = running(Welcome(return_s=60.0))
    launcher.halt = lambda *_: launcher.member.workers_ended(False)  # type: ignore[attr-defined]
    launcher.made.clear()
    launcher.member.unlinked("lost")
    assert [called for called, *_ in launcher.made] == [
        "tell", "close", "await_hub", "connect", "wake",
    ]  # fmt: skip


def test_what_a_launcher_cannot_do_keeps_nothing_else_waiting() -> None:
    launcher, _ = running(Welcome(return_s=60.0))

    def fail(*_: object) -> None:
        raise OSError

    launcher.halt = fail  # type: ignore[attr-defined]
    with pytest.raises(OSError):  # noqa: PT011
        launcher.member.unlinked("lost")
    launcher.made.clear()
    launcher.member.workers_ended(False)
    assert launcher.calls("connect")


def test_workers_are_told_of_a_signal_whatever_the_hub_says() -> None:
    """It may be out of reach, or slow."""
    launcher, _ = running(Welcome(grace_s=7.0))
    launcher.member.told(15)
    assert launcher.said(Signalled) == [Signalled(15)]
    assert launcher.calls("halt") == [[Cause("signal", "node1", code=-15), 7.0]]


def test_the_hub_is_told_once_of_silence_and_once_of_words_after_it() -> None:
    launcher, start = running()
    for is_so in (False, True, True, False, False):
        launcher.member.quiet(is_so)
    assert launcher.said(Silent) == [Silent(1)]
    assert launcher.said(Talking) == [Talking(1)]
    launcher.member.heard(Stop(start.epoch, Cause("lost"), 1.0))
    launcher.member.quiet(True)
    assert launcher.said(Silent) == [Silent(1)]


def test_an_end_that_comes_while_workers_run_waits_for_theirs() -> None:
    launcher, _ = running()
    launcher.member.heard(End(3, Cause("failure", "node0", 0, 3)))
    assert launcher.calls("halt")
    assert launcher.status is None
    launcher.member.workers_ended(False)
    assert launcher.status == 3


def test_nothing_happens_to_one_that_has_ended() -> None:
    launcher, start = running()
    launcher.member.workers_ended(True)
    launcher.member.heard(End(0))
    launcher.made.clear()
    launcher.member.told(15)
    launcher.member.heard(start)
    launcher.member.unlinked()
    assert {called for called, *_ in launcher.made} <= {"wake"}


@pytest.mark.parametrize(
    ("hello", "who"), [({}, "2 of 3 nodes"), ({"rank": 1}, "node rank 0, node rank 2")]
)
def test_those_who_have_not_come_are_counted_or_named_by_their_node_ranks(
    hello: dict[str, Any], who: str
) -> None:
    gang = Gang(least=3, most=3)
    gang.come(0, **hello)
    gang.wait(15)
    assert gang.of(0, Waiting) == [Waiting(who)]


def test_one_that_has_given_its_hub_up_hears_it_no_more() -> None:
    launcher, _ = running()
    for _ in range(11):
        launcher.now += 9.0
        launcher.member.tick()
    assert launcher.member.state == member.FENCED
    launcher.member.heard(End(0))
    launcher.member.heard(Stop(1, Cause("lost"), 1.0))
    assert launcher.status is None
    launcher.member.workers_ended(False)
    assert launcher.status == 69


def test_a_second_hello_on_a_connection_changes_nothing() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    before = gang.hub
    gang.hears(0, Hello(VERSION, "other", "other", 7, epoch=5))
    assert gang.hub.nodes[0].hello == before.nodes[0].hello
    assert gang.hub.floor == 0


def test_workers_that_end_untold_end_all() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    gang.come(1)
    gang.hears(1, Idle(1))
    assert [stop.cause.kind for stop in gang.of(0, Stop)] == ["lost"]


def test_a_failure_with_a_final_status_is_not_tried_again() -> None:
    gang = Gang(least=2, most=2, max_restarts=3, final=frozenset({3}))
    gang.come(0)
    gang.come(1)
    gang.hears(1, fails(1, 1, 3))
    for conn in (0, 1):
        gang.hears(conn, Idle(1))
    assert [end.status for end in gang.of(0, End)] == [3]


def unable(gang: Gang, conn: int, **more: Any) -> None:
    """A launcher that cannot take part says so."""
    gang.come(conn, **{"status": 2, "words": "no script", **more})


def test_a_launcher_that_cannot_take_part_ends_all_with_its_status_and_words() -> None:
    gang = Gang(least=3, most=3)
    gang.come(0)
    gang.come(1)
    unable(gang, 2)
    cause = Cause("unable", "node2", code=2, words="no script")
    for conn in (0, 1):
        assert gang.of(conn, End) == [End(2, cause)]
    assert cause.in_words == "node2 cannot take part: no script"


@pytest.mark.parametrize(
    ("settings", "hello"),
    [
        ({}, {"rank": 1}),
        ({"expected": ("node0", "node1", "node2")}, {"host": "node1"}),
        ({"expected": ("node0", "node1", "node2")}, {"host": "stranger"}),
    ],
)
def test_one_whose_place_is_taken_or_that_has_none_ends_nothing(
    settings: dict[str, Any], hello: dict[str, Any]
) -> None:
    gang = Gang(least=3, most=3, **settings)
    gang.come(0, rank=0)
    gang.come(1, rank=1)
    unable(gang, 2, **hello)
    assert (gang.hub.phase, gang.hub.missing) == ("joining", {})
    gang.come(3, host="node2", rank=2)
    assert gang.of(3, Start)


def test_more_launchers_than_have_a_place_end_nothing() -> None:
    gang = Gang(least=2, most=2, last_call_s=100, spares=1)
    for conn in range(3):
        gang.come(conn)
    unable(gang, 3)
    assert gang.hub.phase == RUNNING


def test_one_more_than_have_a_place_is_not_waited_for() -> None:
    """Where all are here, and one of them may be cut off."""
    gang = three_of_whom_one_may_be_cut_off()
    unable(gang, 3)
    assert gang.hub.phase == JOINING
    assert "another one has its place" in gang.calls("tell_once")[-1][0]


def test_one_that_is_started_again_is_named_and_waited_for() -> None:
    gang = Gang(least=2, most=2)
    gang.come(0)
    unable(gang, 1, again=True)
    ((line,),) = gang.calls("tell_once")
    assert "waiting for it" in line
    assert gang.hub.phase == "joining"
    gang.come(2, "node1")
    assert gang.of(2, Start)


def test_as_many_as_are_enough_begin_at_once_where_the_others_will_not_come() -> None:
    gang = Gang(least=2, most=3, last_call_s=1000)
    gang.come(0)
    gang.come(1)
    assert not gang.of(0, Start)
    unable(gang, 2)
    assert gang.of(0, Start)[0].nnodes == 2
    line = "node2 cannot take part: no script; the others go on without it"
    assert gang.calls("tell_once") == [[line]]


def test_one_that_comes_later_instead_is_counted() -> None:
    gang = Gang(least=2, most=4, last_call_s=1000)
    gang.come(0)
    unable(gang, 1, rank=1)
    assert gang.hub.missing
    gang.come(2, "node1", rank=1)
    assert not gang.hub.missing


def test_one_that_is_refused_ends_all_alike() -> None:
    gang = Gang(least=2, most=2, told=(("--nnodes", "2"),))
    gang.come(0)
    gang.come(1, told=(("--nnodes", "3"),))
    (refused,), (end,) = gang.of(1, Refused), gang.of(0, End)
    assert (end.status, end.cause.in_words) == (2, refused.why)


@pytest.mark.parametrize(
    ("settings", "hello"), [({}, {}), ({"returns": True}, {}), ({}, {"again": True})]
)
def test_one_that_has_gone_before_all_have_met_may_come_again_for_a_moment(
    settings: dict[str, Any], hello: dict[str, Any]
) -> None:
    """Or longer, where something starts it again."""
    gang = Gang(least=3, most=3, dead_s=A_DAY_S, **settings)
    gang.come(0)
    gang.come(1, **hello)
    gang.loses(1, is_certain=True)
    gang.come(1, **hello)
    gang.loses(1, is_certain=True)
    assert not gang.of(0, End)
    gang.wait(hub.RETURN_S + 1)
    ends = [end.cause for end in gang.of(0, End)]
    assert ends == ([] if settings or hello else [Cause("lost", "node1")])


def test_one_that_may_be_cut_off_is_waited_for() -> None:
    gang = Gang(least=3, most=3, dead_s=A_DAY_S)
    gang.come(0)
    gang.come(1)
    gang.loses(1, is_certain=False)
    gang.wait(300)
    assert not gang.of(0, End)


def test_a_hub_whose_launcher_cannot_take_part_tells_all_who_come() -> None:
    gang = Gang(least=3, most=3)
    cause = Cause("unable", "node0", code=2, words="no script")
    gang.hub.end_unmet(cause)
    gang.come(1)
    assert gang.of(1, End) == [End(2, cause)]
    gang.loses(1, is_certain=True)
    assert not gang.hub.is_over
    unable(gang, 2)
    assert gang.of(2, End) == [End(2, cause)]
    assert gang.hub.is_over


def test_it_does_so_for_some_seconds_only() -> None:
    gang = Gang(least=3, most=3)
    gang.hub.end_unmet(Cause("unable", "node0", code=2))
    gang.wait(NEAR_S + 1)
    assert gang.hub.is_over


def test_a_hub_that_is_lost_before_all_have_met_is_looked_for_again() -> None:
    """It may be cut off; where its machine says that nobody is there, it has ended."""
    launcher = Launcher()
    launcher.member.linked()
    launcher.member.heard(Welcome())
    launcher.member.unlinked("lost")
    for _ in range(10):
        launcher.now += 6.0
        launcher.member.unlinked("no answer")
    assert launcher.status is None
    launcher.member.linked()
    launcher.member.heard(Welcome())
    assert launcher.member.state == member.JOINED
    launcher.member.unlinked("lost")
    launcher.member.unlinked("refused", is_nobody=True)
    assert launcher.calls("exit") == [[69, Cause("lost", words="the hub")]]


def test_one_that_was_told_to_end_tells_a_hub_that_was_out_of_reach() -> None:
    launcher = Launcher()
    launcher.member.linked()
    launcher.member.heard(Welcome())
    launcher.member.told(15)
    launcher.member.unlinked("lost")
    launcher.member.linked()
    assert launcher.said(Hello)[-1].leaving == 15


def test_the_ranks_of_an_older_epoch_count_no_more() -> None:
    """A hub of a new process learns from those who come: one may not have heard of the last one."""
    gang = Gang(least=3, most=3, return_s=60.0)
    gang.come(0, epoch=5, nodes=2, last=1)
    assert gang.hub.nodes[0].rank == 1
    gang.come(1, epoch=6, nodes=2, last=1)
    assert [gang.hub.nodes[conn].rank for conn in (0, 1)] == [-1, 1]


def test_newcomers_of_one_host_stand_for_as_many_that_are_lost() -> None:
    hellos = [Hello(VERSION, "node1", f"{n}", 1, rank=n) for n in range(3)]
    lost = [roster.Peer(hello, "", False, 0.0, n) for n, hello in enumerate(hellos)]
    others = [hellos[0], hellos[2]._replace(rank=-1), hellos[1]._replace(rank=-1)]
    came = {n: roster.Peer(hello, "", False, 0.0, n) for n, hello in enumerate(others)}
    for n in range(4):
        here = {conn: came[conn] for conn in range(min(n, 3))}
        assert len(roster.not_back(here, lost)) == 3 - len(here)


@pytest.mark.parametrize("seed", range(100))
def test_no_name_is_lost_where_many_are_folded(seed: int) -> None:
    draw = Random(seed)
    hosts = [f"node{n:0{draw.choice([1, 4])}}.site" for n in range(draw.randrange(2, 40))]
    some = draw.sample([*hosts, "login", "gpu-a"], draw.randrange(1, len(hosts) + 1))
    found = failures.folded(some)
    assert len(found) <= failures.MOST_NAMES
    shown, more = set(), 0
    for text in found:
        if text.endswith(failures.MORE):
            more = int(text.removesuffix(failures.MORE))
        elif run := re.fullmatch(r"(.*)\[(\d+)-(\d+)\](.*)", text):
            before, low, high, after = run.groups()
            numbers = range(int(low), int(high) + 1)
            shown |= {f"{before}{n:0{len(low)}}{after}" for n in numbers}
        else:
            shown.add(text)
    assert shown <= set(some)
    assert len(shown) + more == len(some)
