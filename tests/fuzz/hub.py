"""Whatever a launcher without a token says of itself: the hub says what launchers understand.

Launchers come, say messages in any order and go; those messages that are read are given to the
hub's rules, at random times. No exception, no word that a member would not read, no line that is
no line.
"""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from spawnlaunch.errors import one_line
from spawnlaunch.gang import messages, words
from spawnlaunch.gang.hub import Hub
from spawnlaunch.gang.messages import End, Hello, Start
from spawnlaunch.gang.settings import Settings
from spawnlaunch.gang.wire import MOST_LINE
from tests.fuzz import wire
from tests.fuzz.engine import Subject, once_in, plain_line
from tests.gang.hosts import Calls

CONNECTIONS = 6
NOW = "now"  # the epoch that is under way
EDGES = (1 - 2**53, -200, -65, -2, -1, 0, 65, 256, 65536, 10**9, 10**9 + 1, 2**53 - 1)
NUMBERS = ("int", "Count", "Rank", "Port", "Signal", "Code")


class Case(NamedTuple):
    """A gang, and what happens: the seconds before it, which connection, and what it says."""

    settings: Settings
    happens: tuple[tuple[float, int, Any], ...]  # None: it has gone


def draw(random: Random) -> Case:
    least = random.randint(1, 3)
    settings = Settings(
        least, least + random.choice([0, 0, 1]), spares=random.choice([0, 0, 1]),
        max_restarts=random.choice([0, 3]), last_call_s=1.0, ends_hung=once_in(random, 2),
        returns=once_in(random, 3), told=(("--nnodes", "3"), ("--grace", "30")),
    )  # fmt: skip
    here = random.choice([settings.total, settings.total, random.randint(0, 4)])
    happens = [(0.0, conn, sound(random, conn, (Hello,))) for conn in range(here)]
    for _ in range(random.randint(1, 40)):
        waits_s = random.choice([0.0, 0.0, 0.1, 2.0, 20.0])
        conn = random.randrange(CONNECTIONS)
        said = None if once_in(random, 12) else wire.message(random)
        if said is not None and not once_in(random, 4):
            said = sound(random, conn)
        happens.append((waits_s, conn, said))
    return Case(settings, tuple(happens))


def sound(
    random: Random, conn: int, kinds: tuple[type[Any], ...] = (Hello, *messages.TO_HUB)
) -> dict[str, Any]:
    """What a launcher might say; one field may be extreme."""
    kind = random.choice(kinds)
    said: dict[str, Any] = {"is": kind.__name__.lower(), "epoch": NOW, "rank": conn, "number": 15}
    said |= {"code": random.choice([1, -9, 0]), "port": 29000 + conn}
    if kind is messages.Idle:
        said["outcomes"] = [[conn, random.choice([0, 0, 3])]]
    if kind is Hello:
        said |= {"version": 1, "host": f"host{conn}", "who": f"who{conn}", "nproc": 1, "rank": -1}
        said["epoch"] = 0
    if once_in(random, 4):
        name, annotation = random.choice([*kind.__annotations__.items()])
        said[name] = random.choice(EDGES) if annotation in NUMBERS else wire.anything(random)
    return said


def judge(case: Case) -> None:
    now, calls, numbers = 1000.0, Calls(), list(range(CONNECTIONS))
    hub = Hub(case.settings, calls, lambda: now, calls.wake)
    for waits_s, place, said in case.happens:
        now += waits_s
        conn = numbers[place]
        message = None
        with suppress(messages.Malformed):
            if said and said.get("epoch") == NOW:
                said = {**said, "epoch": hub.epoch}
            read = json.loads(wire.as_bytes(Random(0), said))
            message = messages.from_json(read, messages.TO_HUB)
        if said is None or (isinstance(message, Hello) and conn in hub.nodes):
            hub.gone(conn, is_certain=True)
            numbers[place] += CONNECTIONS
        elif isinstance(message, Hello):
            hub.came(conn, message, "10.0.0.1", is_local=conn == 0)
        elif message is not None:
            hub.heard(conn, message)
        else:
            hub.tick()
        for called, *args in calls.taken():
            if called == "say":
                is_understood(args[1])
            elif called in ("tell", "tell_once"):
                plain_line(one_line(args[0]), most=wire.MOST_SHOWN)
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
    cause = getattr(message, "cause", None)
    if cause:
        plain_line(one_line(cause.in_words), most=wire.MOST_SHOWN)
        plain_line(
            one_line(words.ended("node0", 1, cause, has_hub=False) or "-"), most=wire.MOST_SHOWN
        )


HUB = Subject(draw, judge)
