"""A hub or a launcher alone: what happens to it, in the words of a test, and what it answers."""

from __future__ import annotations

import re
from typing import Any

from spawnlaunch.multinode import hub, member, messages
from spawnlaunch.multinode.messages import Begun, End, Failed, Hello, Refused, Start, Stop
from spawnlaunch.multinode.settings import Settings
from spawnlaunch.outcome import failures
from tests.multinode.hosts import Calls

A_DAY_S = 86400.0
# Settings
AGAIN = {"max_restarts": 3, "return_s": 60.0}  # a lost launcher may be started again
THREE = {"least": 3, "most": 3}
EXPECTED = {**THREE, "expected": ("node0", "node1", "node2")}
VICTIM = "RuntimeError: Connection closed by peer [10.0.0.1]"
# "0-2 come ranked", "1 closes in vain": who, what, a number, and names with values.
EVENT = re.compile(r"(\d+)(?:-(\d+))? (?:is |are )?(\w+?)s?((?: -?\w+=?[\w.]*)*?)( in vain)?")


def fails(epoch: int, rank: int, code: int, words: str = "", oom: str = "", **s: float) -> Failed:
    cause = failures.Cause("failure", rank=rank, code=code, words=words, oom=oom)
    return Failed(epoch, cause, **s)


class Gang(Calls):
    """A hub, and all that it has called; time passes as it is told.

    Nobody is given up for silence, unless `dead_s` says when.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.now = 1000.0
        all_settings = Settings(**{"least": 2, "most": 2, "dead_s": A_DAY_S, **settings})
        self.hub = hub.Hub(all_settings, self, lambda: self.now, self.wake)

    def hears(self, conn: int, message: Any, after_s: float = 0.0) -> None:
        self.now += after_s
        self.hub.received(conn, message)

    def loses(self, conn: int, is_certain: bool, after_s: float = 0.0) -> None:
        self.now += after_s
        self.hub.disconnected(conn, is_certain)

    def come(self, conn: int, host: str = "", addr: str = "", **more: Any) -> None:
        hello = Hello(host or f"node{conn}", f"{conn}", 1)._replace(**more)
        self.hub.connected(conn, hello, addr or f"10.0.0.{conn}", is_local=conn == 0)

    def sleeps(self, seconds: float) -> None:
        """Nobody beats, and the hub does not look."""
        self.now += seconds
        self.hub.tick()

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            due_s = self.due_s
            self.sleeps(end - self.now if due_s is None else min(due_s, end - self.now))
            for conn in [*self.hub.nodes]:
                self.hears(conn, messages.Beat(1))

    @property
    def due_s(self) -> float | None:
        """In how many seconds it wants to look again."""
        self.hub.tick()
        due_s: float | None = self.calls("wake")[-1][0]
        return due_s

    def of(self, conn: int, kind: type) -> list[Any]:
        return [said for to, said in self.calls("send") if to == conn and isinstance(said, kind)]

    def lines(self) -> list[str]:
        """What the hub's user was told."""
        return [args[0] for what, *args in self.made if what in ("print_line", "print_once")]

    # In words

    def play(self, events: str) -> None:
        """Such as "0-2 come; wait 9; 1 closes in vain": nothing is decided at that event."""
        for event in events.split("; "):
            before = self._told_to_all()
            word, _, number = event.removesuffix(" in vain").partition(" ")
            if word in ("wait", "sleep"):
                (self.wait if word == "wait" else self.sleeps)(float(number))
            else:
                self._happens(event)
            assert not event.endswith("in vain") or self._told_to_all() == before, event

    def _told_to_all(self) -> list[str]:
        """One that is refused is not of these."""
        return [words for words in self.decided() if words != "refused"]

    def _happens(self, event: str) -> None:
        found = EVENT.fullmatch(event)
        assert found, event
        first, last, what, rest, _ = found.groups()
        words = dict(each.partition("=")[::2] for each in rest.split())
        named = {name: _value(text) for name, text in words.items() if text}
        plain = [name for name in words if not words[name]]
        for conn in range(int(first), int(last or first) + 1):
            self._one(conn, what, plain, named)

    def _one(self, conn: int, what: str, plain: list[str], named: dict[str, Any]) -> None:
        number = next((int(word) for word in plain if word.lstrip("-").isdigit()), 0)
        epoch = self.hub.epoch
        match what:
            case "come":
                self.come(conn, **({"given_node_rank": conn} if "ranked" in plain else {}), **named)
            case "unable":
                self.come(conn, status=2, words="no script", **named)
            case "close" | "lost":
                self.loses(conn, is_certain=what == "close")
            case "beat":
                self.hears(conn, messages.Beat(1))
            case "told":
                self.hears(conn, messages.Signalled(number, "again" in plain))
            case "done":
                self.hears(conn, messages.Done(epoch))
            case "idle":
                outcomes = ((conn, number),) if plain else ()
                self.hears(conn, messages.Idle(epoch, 20000 + epoch, outcomes))
            case "fail":
                words = VICTIM if "victim" in plain else ""
                self.hears(conn, fails(epoch, conn, number, words))
            case _:
                raise AssertionError(what)

    def decided(self, *conns: int) -> list[str]:
        """What these were told, or all: starts with node rank and nodes, stops, ends, refusals."""
        said = [message for to, message in self.calls("send") if to in conns or not conns]
        return [words for words in map(_in_words, said) if words]


def _value(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _in_words(message: Any) -> str:
    match message:
        case Start():
            return f"start {message.node_rank}/{message.nnodes}"
        case Stop():
            now = "" if message.grace_s else " now"
            return " ".join(filter(None, ("stop", message.cause.kind, message.cause.host))) + now
        case End():
            return f"end {message.status}"
        case Begun():
            return f"begun {message.epoch}"
        case Refused():
            return "refused"
    return ""


class Launcher(Calls):
    """A member, and all that it has called."""

    def __init__(self, *happened: str) -> None:
        """`happened` to it: it is "linked", "welcome"."""
        super().__init__()
        self.now = 1000.0
        hello = Hello("node1", "1", 1)
        self.member = member.Member(
            hello, 600.0, self, self, lambda: self.now, self.wake, self.place
        )
        self.member.begin()
        if "linked" in happened:
            self.member.linked()
        if "welcome" in happened:
            self.member.received(messages.Welcome())

    def wait(self, seconds: float) -> None:
        """So long, as its clock tells it."""
        end = self.now + seconds
        while self.now < end and self.member.state != member.ENDED:
            self.now += min(self.calls("wake")[-1][0], end - self.now)
            self.member.tick()

    def said(self, kind: type) -> list[Any]:
        return [one for (one,) in self.calls("send") if isinstance(one, kind)]

    @property
    def status(self) -> int | None:
        exits = self.calls("exit")
        return exits[0][0] if exits else None
