"""Whatever a launcher without a token says of itself: the hub says what launchers understand.

Launchers come, say messages in any order and go; those messages that are read are given to the
hub's rules, at random times. No exception, no word that a member would not read, no line that is
no line.
"""

import json
from contextlib import suppress
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from spawnlaunch.base.errors import one_line
from spawnlaunch.multinode import messages, words
from spawnlaunch.multinode.hub import Hub
from spawnlaunch.multinode.messages import End, Hello, Start
from spawnlaunch.multinode.settings import Settings
from spawnlaunch.multinode.wire import MOST_LINE
from tests.multinode.any_message import ANYTHING, MOST_SHOWN, any_messages, as_bytes
from tests.multinode.hosts import Calls
from tests.support.answers import bounded, plain_line
from tests.support.examples import examples, nightly

CONNECTIONS = 6
NOW = "now"  # the epoch that is under way
EDGES = (1 - 2**53, -200, -65, -2, -1, 0, 65, 256, 65536, 10**9, 10**9 + 1, 2**53 - 1)
NUMBERS = ("int", "Count", "Rank", "Port", "Signal", "Code")


class Case(NamedTuple):
    """A gang, and what happens: the seconds before it, which connection, and what it says."""

    settings: Settings
    happens: list[tuple[float, int, Any]]  # None: it has gone


@st.composite
def sound(draw: DrawFn, conn: int, kinds: tuple[type[Any], ...]) -> dict[str, Any]:
    """What a launcher might say; one field may be extreme."""
    kind = draw(st.sampled_from(kinds))
    said: dict[str, Any] = {"is": kind.__name__.lower(), "epoch": NOW, "rank": conn, "number": 15}
    said |= {"code": draw(st.sampled_from([1, -9, 0])), "port": 29000 + conn}
    if kind is messages.Idle:
        said["outcomes"] = [[conn, draw(st.sampled_from([0, 0, 3]))]]
    if kind is Hello:
        said |= {
            "host": f"host{conn}",
            "launcher_id": f"who{conn}",
            "nproc": 1,
            "given_node_rank": -1,
        }
        said["epoch"] = 0
    if not draw(st.integers(0, 3)):
        name, annotation = draw(st.sampled_from([*kind.__annotations__.items()]))
        said[name] = draw(st.sampled_from(EDGES) if annotation in NUMBERS else ANYTHING)
    return said


@st.composite
def happenings(draw: DrawFn) -> tuple[float, int, Any]:
    """Something that a connection does, after a time."""
    conn = draw(st.integers(0, CONNECTIONS - 1))
    good = sound(conn, (Hello, *messages.TO_HUB))
    said = draw(st.one_of(good, good, good, any_messages(), st.none()))
    return draw(st.sampled_from([0.0, 0.0, 0.1, 2.0, 20.0])), conn, said


@st.composite
def cases(draw: DrawFn) -> Case:
    """A gang of up to four nodes, most of which are there already."""
    least = draw(st.integers(1, 3))
    settings = Settings(
        least, least + draw(st.integers(0, 1)), spares=draw(st.integers(0, 1)),
        max_restarts=draw(st.sampled_from([0, 3])), last_call_s=1.0, ends_hung=draw(st.booleans()),
        is_restarted_by_manager=draw(st.booleans()), flags=(("--nnodes", "3"), ("--grace", "30")),
    )  # fmt: skip
    here = draw(st.just(settings.most_launchers) | st.integers(0, 4))
    hellos = [(0.0, conn, draw(sound(conn, (Hello,)))) for conn in range(here)]
    return Case(settings, hellos + draw(st.lists(happenings(), min_size=1, max_size=40)))


def is_followed(case: Case) -> None:
    now, calls, numbers = 1000.0, Calls(), list(range(CONNECTIONS))
    hub = Hub(case.settings, calls, lambda: now, calls.wake)
    for waits_s, place, said in case.happens:
        now += waits_s
        conn = numbers[place]
        message = None
        with suppress(messages.Malformed):
            if said and said.get("epoch") == NOW:
                said = {**said, "epoch": hub.epoch}
            message = messages.from_json(json.loads(as_bytes(said)), messages.TO_HUB)
        if said is None or (isinstance(message, Hello) and conn in hub.nodes):
            hub.disconnected(conn, is_certain=True)
            numbers[place] += CONNECTIONS
        elif isinstance(message, Hello):
            hub.connected(conn, message, "10.0.0.1", is_local=conn == 0)
        elif message is not None:
            hub.received(conn, message)
        else:
            hub.tick()
        for called, *args in calls.taken():
            if called == "send":
                is_understood(args[1])
            elif called in ("print_line", "print_once"):
                plain_line(one_line(args[0]), most=MOST_SHOWN)
            elif called == "wake":
                assert args[0] is None or args[0] > 0
        assert len(hub.nodes) <= CONNECTIONS
        assert 0 <= hub.status <= 255, hub.status


def is_understood(message: Any) -> None:
    text = json.dumps(messages.to_json(message))
    assert len(text) < MOST_LINE
    messages.from_json(json.loads(text), messages.TO_MEMBER)
    if isinstance(message, Start):
        assert message.master_addr.isprintable(), message
        assert 0 < message.master_port < 65536, message
        assert 0 <= message.first_rank < message.world_size <= 2**40, message
    if isinstance(message, End):
        assert 0 <= message.status <= 255, message
    if cause := getattr(message, "cause", None):
        for line in (cause.in_words, words.ended("node0", 1, cause, has_hub=False) or "-"):
            plain_line(one_line(line), most=MOST_SHOWN)


def is_followed_within_bounds(case: Case) -> None:
    with bounded():
        is_followed(case)


test_any_launchers_are_followed = examples(50, 400)(given(cases())(is_followed_within_bounds))
test_thousands_of_gangs_are_followed = nightly(given(cases())(is_followed_within_bounds))
