"""Single rules of the hub: which failure is the first, what is said of an end, and who is near."""

from __future__ import annotations

from typing import Any

import pytest

from spawnlaunch.multinode import roster
from spawnlaunch.multinode.messages import (
    End,
    Failed,
    Hello,
    Refused,
    Silent,
    Stacked,
    Stacks,
    Start,
    Waiting,
    Welcome,
)
from spawnlaunch.multinode.phases import NEAR_S, STACKS_S
from spawnlaunch.outcome.failures import Cause
from tests.multinode.playing import AGAIN, EXPECTED, THREE, Gang, fails

# Which of several failures is the first

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
        pytest.param(fails(1, 0, 7), fails(1, 1, KILL, oom="oom"), 0.05, 1, id="no memory"),
        pytest.param(fails(1, 0, 7), fails(1, 1, 8, oom="oom"), 0.05, 0, id="not its own"),
    ],
)  # fmt: skip
def test_which_of_two_failures_is_the_first(
    one: Failed, other: Failed, after_s: float, first: int
) -> None:
    gang = Gang()
    gang.play("0-1 come")
    gang.hears(one.cause.rank, one)
    gang.hears(other.cause.rank, other, after_s)
    gang.play("0-1 are idle")
    assert [end.cause.rank for end in gang.of(0, End)] == [first]


# What is said of it


@pytest.mark.parametrize(
    ("settings", "events", "words"),
    [
        ({}, "0 comes; 1 is unable", "node1 cannot take part: no script"),
        (
            AGAIN,
            "0 comes; 1 comes epoch=2 nodes=2 last_node_rank=1 used=3",
            "the hub before was lost",
        ),
    ],
)
def test_all_hear_why_it_ends(settings: dict[str, Any], events: str, words: str) -> None:
    gang = Gang(**settings)
    gang.play(events)
    (end,) = gang.of(0, End)
    assert end.cause.in_words.startswith(words)


@pytest.mark.parametrize(
    ("settings", "events", "words"),
    [
        (THREE, "0 comes end_signal=15", "to tell 2 of 3 nodes"),
        (EXPECTED, "0 comes end_signal=15", "to tell node1, node2"),
        ({}, "0 comes; 1 is unable is_restarted=1", "waiting for it, as it is started again"),
        ({"spares": 1, "last_call_s": 100}, "0-2 come; 3 is unable", "another one has its place"),
        (
            {"least": 2, "most": 3},
            "0-1 come; 2 is unable",
            "node2 cannot take part: no script; the others go on without it",
        ),
    ],
)
def test_the_hubs_user_is_told_who_is_waited_for(
    settings: dict[str, Any], events: str, words: str
) -> None:
    gang = Gang(**settings)
    gang.play(events)
    assert gang.lines()[-1].endswith(words)


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        ({"given_node_rank": 0}, "node1 and node0 both have node rank 0"),
        ({"given_node_rank": 2}, "node1 has node rank 2, of 2 nodes"),
        ({"flags": (("--nnodes", "3"),)}, "node1 has --nnodes 3, the hub 2"),
        ({"nproc": 0}, "node1 has 0 workers"),
    ],
)
def test_why_one_is_refused(hello: dict[str, Any], said: str) -> None:
    gang = Gang(flags=(("--nnodes", "2"),))
    gang.come(0, given_node_rank=0)
    gang.come(1, **hello)
    (refused,) = gang.of(1, Refused)
    assert said in refused.why
    ends = [end.cause.in_words for end in gang.of(0, End)]
    assert ends == (
        [] if hello == {"given_node_rank": 0} else [refused.why]
    )  # it may have been started twice


def test_what_a_launcher_was_told_otherwise_is_said() -> None:
    gang = Gang(flags=(("--grace", "30"),))
    gang.come(1, flags=(("--grace", "5"),))
    (welcome,) = gang.of(1, Welcome)
    assert welcome.differs == ("--grace 5, the hub 30",)


@pytest.mark.parametrize(
    ("ranked", "who"), [("", "2 of 3 nodes"), (" ranked", "node rank 0, node rank 2")]
)
def test_those_who_have_not_come_are_counted_or_named(ranked: str, who: str) -> None:
    gang = Gang(**THREE)
    gang.play(f"1 comes{ranked}; wait 9")
    assert gang.of(1, Waiting) == [Waiting(who, left_s=595.0)]
    assert gang.lines() == [f"waiting for {who} at {gang.place}, up to 595 s"]


def test_those_who_are_lost_are_waited_for_by_name() -> None:
    """Who comes meanwhile knows of the epochs, and waits as long as the others for a lost hub."""
    gang = Gang(**THREE, **AGAIN)
    gang.play("0-2 come; 1-2 close; 0 is idle")
    assert gang.of(0, Waiting) == [Waiting("node1, node2", return_s=60.0)]
    gang.play("11 comes host=node1; wait 55 in vain")
    assert {waiting.names for waiting in gang.of(0, Waiting)[1:]} == {"node2"}
    gang.play("wait 10")
    assert gang.decided(11) == ["begun 1", "end 69"]
    assert gang.of(0, End)[0].cause.words == "node2; nobody has come back within 60 s"


@pytest.mark.parametrize("before", ["0 is idle", "0 is idle; 2 is idle"])
def test_what_to_type_is_said_for_each_that_is_lost(before: str) -> None:
    """Also for one that is lost while the others wait already."""
    gang = Gang(**THREE, **AGAIN)
    gang.play(f"0-2 come ranked; 1 closes; {before}; 2 closes; wait 2")
    for rank in (1, 2):
        assert any(f"node{rank}" in line and f"<{rank} 1>" in line for line in gang.lines())


# How long the hub stays


@pytest.mark.parametrize(
    ("settings", "events", "is_over"),
    [
        (THREE, "0 comes end_signal=15; 1 comes; 0-1 close; wait 5", False),
        (THREE, "0 comes end_signal=15; 1 comes; 0-1 close; wait 5; 2 comes", True),
        ({"least": 4, "most": 4}, "0 comes end_signal=15; 1-2 come; wait 5", False),
        (THREE, "0 comes end_signal=15; wait 9", False),
        (THREE, "0 comes end_signal=15; wait 11", True),
        (
            AGAIN,
            "0 comes epoch=1 nodes=2 last_node_rank=1; 0 is told 15",
            True,
        ),  # it follows another one
        ({}, "0 comes; wait 40; 0 is told 15", True),  # it was waited for long
    ],
)
def test_a_hub_stays_for_those_who_are_near(
    settings: dict[str, Any], events: str, is_over: bool
) -> None:
    """They would seek it until join_timeout."""
    gang = Gang(**settings)
    gang.play(events)
    assert gang.hub.is_over == is_over
    assert gang.calls("linger")
    told = {to for to, _ in gang.calls("send")}
    assert all(gang.decided(conn) == ["end 143"] for conn in told)


def test_a_hub_whose_launcher_cannot_take_part_tells_all_who_come() -> None:
    """For some seconds."""
    cause = Cause("unable", "node0", code=2, words="no script")
    gang, other = Gang(**THREE), Gang(**THREE)
    for each in (gang, other):
        each.hub.end_unmet(cause)
    gang.play("1 comes; 1 closes")
    assert gang.of(1, End) == [End(2, cause)]
    assert not gang.hub.is_over
    gang.play("2 is unable")
    assert gang.of(2, End) == [End(2, cause)]
    assert gang.hub.is_over
    other.wait(NEAR_S + 1)
    assert other.hub.is_over


def test_all_have_some_seconds_to_hear_the_end() -> None:
    """And no more: one that is frozen does not keep the hub."""
    gang = Gang()
    gang.play("0-1 come; 0 is done")
    assert not gang.calls("linger")
    gang.play("1 is done")
    assert gang.calls("linger")


# The name of the launch


@pytest.mark.parametrize(
    ("settings", "events", "epoch"),
    [
        (
            {"least": 2, "most": 3, "max_restarts": 1, "launch_name": "mine"},
            "0 comes; 1 comes; wait 31; 2 comes; 0-1 are idle; wait 2",
            2,
        ),
        (
            {"max_restarts": 1, "launch_name": "another hub's"},
            "0 comes; 1 comes launch_name=mine epoch=5 nodes=2 last_node_rank=1; wait 300",
            6,
        ),
    ],
)
def test_a_launch_keeps_its_name(settings: dict[str, Any], events: str, epoch: int) -> None:
    gang = Gang(**settings)
    gang.play(events)
    starts = [message for _, message in gang.calls("send") if isinstance(message, Start)]
    assert {start.launch_name for start in starts} == {"mine"}
    assert gang.hub.epoch == epoch


# The rest


@pytest.mark.parametrize(("tell", "after_s"), [((0, 1), 0.0), ((0,), STACKS_S)])
def test_where_ranks_hang_is_compared_once_all_have_told_or_after_a_time(
    tell: tuple[int, ...], after_s: float
) -> None:
    gang = Gang()
    gang.play("0-1 come")
    for conn in (0, 1):
        gang.hears(conn, Silent(1))
    assert [len(gang.of(conn, Stacks)) for conn in (0, 1)] == [1, 1]
    for conn in tell:
        assert not gang.calls("compare")
        gang.hears(conn, Stacked(1))
    gang.wait(after_s)
    assert gang.calls("compare") == [[[Stacked(1)] * len(tell)]]


def test_the_connection_of_a_launcher_that_was_started_again_is_ended() -> None:
    gang = Gang()
    gang.play("0 comes; 1 comes boot=a; 2 comes host=node1 boot=b addr=10.0.0.1")
    assert gang.calls("dismiss") == [[1]]


def test_a_second_hello_on_a_connection_changes_nothing() -> None:
    gang = Gang()
    gang.play("0 comes")
    gang.hears(0, Hello("other", "other", 7, epoch=5))
    gang.play("1 comes")
    (start,) = gang.of(0, Start)
    assert (start.epoch, start.world_size) == (1, 2)


def test_the_time_of_a_launch_is_looked_at_when_it_is_over() -> None:
    gang = Gang(timeout_s=100.0)
    gang.play("0-1 come; sleep 99")
    assert gang.due_s == pytest.approx(1.0)


def test_newcomers_of_one_host_stand_for_as_many_that_are_lost() -> None:
    hellos = [Hello("node1", f"{n}", 1, given_node_rank=n) for n in range(3)]
    lost = [roster.Peer(hello, "", False, 0.0, n) for n, hello in enumerate(hellos)]
    others = [
        hellos[0],
        hellos[2]._replace(given_node_rank=-1),
        hellos[1]._replace(given_node_rank=-1),
    ]
    came = {n: roster.Peer(hello, "", False, 0.0, n) for n, hello in enumerate(others)}
    for n in range(4):
        here = {conn: came[conn] for conn in range(min(n, 3))}
        assert len(roster.not_back(here, lost)) == 3 - len(here)


def test_names_with_thousands_of_digits_are_ordered_as_any() -> None:
    """Python makes no number of so many (sys.set_int_max_str_digits)."""
    long = "node" + "9" * 5000
    assert sorted([long, "node10", "node2"], key=roster.natural) == ["node2", "node10", long]
