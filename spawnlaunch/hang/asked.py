"""A worker that is asked where it is, and what torch has recorded there: see spawnlaunch/witness.

The question is sent at once; the answer comes when it comes, so that many can be asked together.
"""

from __future__ import annotations

import json

from spawnlaunch import witness
from spawnlaunch.base import machine, records
from spawnlaunch.hang import flight, frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

MOST_BYTES = 1 << 26  # of an answer
# A group of NCCL's may have gloo for CPUs beside it, which has a recorder and counts by itself.
BESIDE = " of gloo"


class Look(records.NamedTuple):
    """Where the main thread was at a moment."""

    when: int  # nanoseconds since 1970
    stack: frames.Stack


class Testimony(records.NamedTuple):
    """What a worker has told."""

    threads: str  # the stacks of all of them, as py-spy writes them
    looks: Sequence[Look]
    record: flight.Record  # empty where there is no process group, or torch records nothing
    when: int  # that was read, nanoseconds since 1970
    cost_s: float  # CPU time of the worker


def silent(when: int) -> Testimony:
    """Of a rank that cannot answer: it does not wait in a collective, where its thread could."""
    return Testimony("", (), flight.Record((), {}), when, 0.0)


def as_json(answer: Testimony) -> dict[str, Any]:
    """For another node, without the threads."""
    record, members = answer.record, {n: sorted(r) for n, r in answer.record.members.items()}
    told = {"calls": record.calls, "members": members, "whole": record.is_whole}
    return {"looks": answer.looks, **told, "when": answer.when}


def from_json(told: Mapping[str, Any], later_ns: int) -> Testimony:
    """The answer; `later_ns` is added to its times, which are of another's clock.

    Raises TypeError, ValueError or KeyError where it is none.
    """
    calls = tuple(
        flight.Collective(
            str(group),
            int(number),
            str(name),
            str(what),
            str(at),
            flight.moment(when + later_ns),
            bool(is_over),
        )
        for group, number, name, what, at, when, is_over in told["calls"]
    )
    record = flight.Record(calls, _members(told["members"]), bool(told["whole"]))
    looks = [Look(flight.moment(when + later_ns), _stack(stack)) for when, stack in told["looks"]]
    when = flight.moment(told["when"] + later_ns)
    return Testimony("", looks, record, when, 0.0)


def _members(told: Mapping[str, Iterable[Any]]) -> dict[str, frozenset[int]]:
    return {name: frozenset(map(int, ranks)) for name, ranks in told.items()}


def _stack(told: Any) -> frames.Stack:
    return tuple(frames.Frame(str(name), str(file), int(line)) for name, file, line in told)


class Question:
    """One worker that was asked; `fd` can be read when more of its answer has come."""

    def __init__(self, pid: int, start: int, seconds: float = 0.0, every: float = 0.04) -> None:
        """Ask: what the recorder has after that time, and looks at the main thread within it.

        Raises OSError where nobody listens there, or somebody else.
        """
        self._data = bytearray()
        self._socket, *who = machine.connect_local(witness.address(pid, start))
        if who != [pid, machine.geteuid()]:
            self.close()
            raise PermissionError
        self._socket.send(json.dumps({"seconds": seconds, "every": every}).encode() + b"\n")

    @property
    def fd(self) -> int:
        number: int = self._socket.fileno()
        return number

    def read(self) -> Testimony | None:
        """The answer, once it is there. Raises OSError where there will be none."""
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return None
        self._data += data
        if len(self._data) > MOST_BYTES:
            raise OSError("no end of it")
        if data:
            return None
        try:
            return answer(bytes(self._data))
        except Exception as error:  # whatever a parser may fail of: it is half there
            raise OSError(str(error)) from None

    def close(self) -> None:
        """Nobody wants to know any more."""
        self._socket.close()


def answer(data: bytes) -> Testimony:
    """Read a whole answer. May raise any exception."""
    line, _, rest = data.partition(b"\n")
    head: dict[str, Any] = json.loads(line)
    stacks = [*map(_stack, head["stacks"])]
    read: list[flight.Record] = []
    members = _members(head["groups"])
    for size in head["dumps"]:
        is_last = len(read) + 1 == len(head["dumps"])
        read.append(flight.read(rest[:size], "" if is_last else BESIDE))
        members |= {} if is_last else {f"{name}{BESIDE}": ranks for name, ranks in members.items()}
        rest = rest[size:]
    for each in read:
        members = {**each.members, **members}
    calls = tuple(call for each in read for call in each.calls)
    record = flight.Record(calls, members, all(each.is_whole for each in read))
    looks = [Look(flight.moment(when), stacks[i]) for when, i in head["looks"]]
    when, cost_s = flight.moment(head["when"]), float(head["seconds"])
    return Testimony(str(head["threads"]), looks, record, when, cost_s)
