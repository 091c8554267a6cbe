"""The question to a worker where it is, and the worker's answer: see spawnlaunch/witness.

The question is sent at once, and the answer is read when it comes, so that many workers can be
asked at the same time. The answer also has what torch has recorded in the worker.
"""

from __future__ import annotations

import json

from spawnlaunch import witness
from spawnlaunch.base import machine, records
from spawnlaunch.hang import flight, groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

MOST_BYTES = 1 << 26  # of an answer
# A group of NCCL's may have gloo for CPUs beside it, which has a recorder and counts by itself.
BESIDE = " of gloo"


class StackSample(records.NamedTuple):
    """The place of the main thread at a moment."""

    when: int  # nanoseconds since 1970
    place: str  # train.py:88; "" where no line of the user's program is under way
    is_backward: bool  # within a backward pass


class Testimony(records.NamedTuple):
    """A worker's answer."""

    threads: str  # the stacks of all of them, as py-spy writes them
    samples: Sequence[StackSample]
    record: flight.Record  # empty where there is no process group, or torch records nothing
    when: int  # that was read, nanoseconds since 1970
    cost_s: float  # CPU time of the worker

    def until(self, when: int) -> Testimony:
        """The answer as the worker would have given it at an earlier moment."""
        if when >= self.when:
            return self
        calls = tuple(call for call in self.record.calls if call.when <= when)
        samples = [sample for sample in self.samples if sample.when <= when]
        return self._replace(when=when, samples=samples, record=self.record._replace(calls=calls))


# The answer noted for a rank that cannot answer. Such a rank waits in no collective, as its thread
# could answer there. It is of no certain moment, so that it counts at that of any other answer.
SILENT = Testimony("", (), flight.Record((), {}), flight.LAST_NS, 0.0)


def as_json(answer: Testimony, most_calls: int | None = None) -> dict[str, Any]:
    """The answer as JSON for another node, without the threads, and with the last calls alone."""
    record, calls = answer.record, answer.record.calls
    if most_calls is not None:
        calls = tuple(sorted(calls, key=lambda call: call.when)[-most_calls:])
    return {
        "looks": answer.samples,
        "calls": calls,
        "members": {name: sorted(ranks) for name, ranks in record.members.items()},
        "whole": record.is_whole and len(calls) == len(record.calls),
        "when": answer.when,
    }


def from_json(values: Mapping[str, Any], later_ns: int = 0) -> Testimony:
    """Read an answer from JSON.

    `later_ns` is added to its times, which are of another node's clock.
    Raises TypeError, ValueError or KeyError where the value is no answer.
    """
    calls = tuple(
        flight.Collective(
            str(group), int(number), str(name), str(shape), str(place),
            flight.moment(when + later_ns), bool(is_over),
        )
        for group, number, name, shape, place, when, is_over in values["calls"]
    )  # fmt: skip
    record = flight.Record(calls, _members(values["members"]), bool(values["whole"]))
    samples = [
        StackSample(flight.moment(when + later_ns), str(place), bool(is_backward))
        for when, place, is_backward in values["looks"]
    ]
    return Testimony("", samples, record, flight.moment(values["when"] + later_ns), 0.0)


def _members(members: Mapping[str, Iterable[Any]]) -> dict[str, frozenset[int]]:
    return {name: frozenset(map(int, ranks)) for name, ranks in members.items()}


class Question:
    """The question to one worker; `fd` can be read when more of its answer has come."""

    def __init__(self, pid: int, start: int, seconds: float = 0.0, every: float = 0.04) -> None:
        """Ask for the recorder's entries after `seconds`.

        Within that time the witness looks at the main thread, each `every` seconds.

        Raises OSError where no witness listens there, or another process does.
        """
        self._data = bytearray()
        self._socket, *peer = machine.connect_local(witness.address(pid, start))
        if peer != [pid, machine.geteuid()]:
            self.close()
            raise PermissionError
        self._socket.send(json.dumps({"seconds": seconds, "every": every}).encode() + b"\n")

    @property
    def fd(self) -> int:
        number: int = self._socket.fileno()
        return number

    def read(self) -> Testimony | None:
        """Return the answer, once it is complete. Raises OSError where there will be none."""
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
            return parse_testimony(bytes(self._data))
        except Exception as error:  # a parser may raise anything for an incomplete answer
            raise OSError(str(error)) from None

    def close(self) -> None:
        """Stop waiting for the answer."""
        self._socket.close()


def parse_testimony(data: bytes) -> Testimony:
    """Read a whole answer. May raise any exception."""
    line, _, rest = data.partition(b"\n")
    head: dict[str, Any] = json.loads(line)
    stacks = [
        tuple(groups.Frame(str(name), str(file), int(line)) for name, file, line in stack)
        for stack in head["stacks"]
    ]
    at = [(groups.user_place(stack), groups.is_backward(stack)) for stack in stacks]
    samples = [StackSample(flight.moment(when), *at[i]) for when, i in head["looks"]]
    dumps: list[flight.Record] = []
    members = _members(head["groups"])
    for size in head["dumps"]:
        is_last = len(dumps) + 1 == len(head["dumps"])
        dumps.append(flight.read(rest[:size], "" if is_last else BESIDE))
        members |= {} if is_last else {f"{name}{BESIDE}": ranks for name, ranks in members.items()}
        rest = rest[size:]
    for each in dumps:
        members = {**each.members, **members}
    calls = tuple(call for each in dumps for call in each.calls)
    record = flight.Record(calls, members, all(each.is_whole for each in dumps))
    when, cost_s = flight.moment(head["when"]), float(head["seconds"])
    return Testimony(str(head["threads"]), samples, record, when, cost_s)
