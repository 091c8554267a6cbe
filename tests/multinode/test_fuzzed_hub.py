"""Whatever a launcher without a token says of itself: the hub says what launchers understand.

Launchers come, report in any order and go; those Reports that are read are given to the hub's
rules, at random times. No exception, no order that a node would not read, no line that is no line.
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
from spawnlaunch.multinode.messages import END, RUN, Order, Report
from spawnlaunch.multinode.settings import Settings
from spawnlaunch.multinode.wire import MOST_LINE
from tests.multinode.any_message import MOST_SHOWN, any_reports, as_bytes
from tests.multinode.calls import Calls
from tests.support.answers import bounded, plain_line
from tests.support.examples import examples, nightly

CONNECTIONS = 6
NOW = -7  # stands for the epoch that is under way


class Case(NamedTuple):
    """A launch, and what happens: the seconds before it, which connection, and its Report."""

    settings: Settings
    happens: list[tuple[float, int, Any]]  # None: it has gone


@st.composite
def happenings(draw: DrawFn) -> tuple[float, int, Any]:
    """Something that a connection does, after a time."""
    conn = draw(st.integers(0, CONNECTIONS - 1))
    state = draw(st.sampled_from(["ready", "running", "stopping", "finished"]))
    who = {"host": f"host{conn}", "who": f"who{conn}", "port": 29000 + conn}
    report = any_reports(**who, epoch=NOW, state=state, is_silent=draw(st.booleans()))
    said = draw(st.one_of(report, report, report, st.none()))
    return draw(st.sampled_from([0.0, 0.0, 0.1, 2.0, 20.0])), conn, said


@st.composite
def cases(draw: DrawFn) -> Case:
    """A launch of up to four nodes, most of which are there already."""
    least = draw(st.integers(1, 3))
    settings = Settings(
        least, least + draw(st.integers(0, 1)), spares=draw(st.integers(0, 1)),
        max_restarts=draw(st.sampled_from([0, 3])), last_call_s=1.0, ends_hung=draw(st.booleans()),
        can_return=draw(st.booleans()), flags="--nnodes=3 --grace=30",
    )  # fmt: skip
    here = draw(st.just(settings.total) | st.integers(0, 4))
    comes = [(0.0, n, [*Report(f"host{n}", f"who{n}", 1)]) for n in range(here)]
    return Case(settings, comes + draw(st.lists(happenings(), min_size=1, max_size=40)))


def is_followed(case: Case) -> None:
    now, calls, numbers = 1000.0, Calls(), list(range(CONNECTIONS))
    hub, epoch_at = Hub(case.settings, calls, now), Report._fields.index("epoch")
    for waits_s, place, said in case.happens:
        now += waits_s
        conn = numbers[place]
        if said is None:
            hub.lose(conn, True, now)
            numbers[place] += CONNECTIONS
        else:
            said = [hub.epoch if n == epoch_at and v == NOW else v for n, v in enumerate(said)]
            with suppress(messages.Malformed):
                report = messages.read_record(Report, json.loads(as_bytes(said)))
                hub.hear(conn, now)
                hub.take(conn, report, "10.0.0.1", conn == 0, now)
        assert now < hub.reconcile(now) <= now + 1.0
        for called, *args in calls.taken():
            if called == "say":
                is_understood(args[1])
            elif called in ("tell", "tell_once"):
                plain_line(one_line(args[0]), most=MOST_SHOWN)
        assert len(hub.peers) <= CONNECTIONS
        assert 0 <= hub.status <= 255, hub.status


def is_understood(order: Order) -> None:
    text = json.dumps(order)
    assert len(text) < MOST_LINE
    assert messages.read_record(Order, json.loads(text)) == order
    if order.action == RUN:
        assert order.master_addr.isprintable(), order
        assert 0 <= order.first_rank < order.world_size <= 2**40, order
    if order.action == END:
        assert 0 <= order.status <= 255, order
    if order.cause:
        line = words.ended("node0", 1, order.cause, has_hub=False) or "-"
        plain_line(one_line(line), most=MOST_SHOWN)


def is_followed_within_bounds(case: Case) -> None:
    with bounded():
        is_followed(case)


test_any_launchers_are_followed = examples(50, 400)(given(cases())(is_followed_within_bounds))
test_thousands_of_launches_are_followed = nightly(given(cases())(is_followed_within_bounds))
