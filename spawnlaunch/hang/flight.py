"""The flight recorder of torch.distributed: the first collective on which ranks disagree.

A dump is a pickle of plain values (torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.x;
torch's own reader is torch.distributed.flight_recorder):

    {"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
     "entries": [{"record_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 88,
                  "is_p2p": False, "profiling_name": "nccl:all_reduce", "state": "started",
                  "input_sizes": [[4]], "input_dtypes": ["Float"], "time_created_ns":
                  1795344579414854513, "frames": [{"name": "step", "filename": "/home/me/train.py",
                  "line": 88}, ...]}, ...]}

The entries are the last ones, as many as the buffer has room for (TORCH_FR_BUFFER_SIZE). A thread
of NCCL's process group writes a dump where a byte is written to its pipe, whose name begins with
TORCH_NCCL_DEBUG_INFO_PIPE_FILE and ends with the rank and ".pipe"; the dump's begins with
TORCH_FR_DUMP_TEMP_FILE (before torch 2.9 TORCH_NCCL_DEBUG_INFO_TEMP_FILE) and ends with the rank.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from contextlib import suppress
from math import prod

from spawnlaunch.base import machine
from spawnlaunch.base.records import NamedTuple
from spawnlaunch.hang.frames import Frame
from spawnlaunch.hang.groups import own, place_of, ranks_of
from spawnlaunch.workers import flight_recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, NoReturn

# Collectives with equal sizes on all ranks; the sizes of gathered or sent tensors may differ.
ALIKE = ("all_reduce", "allreduce", "broadcast", "reduce")
MOST_BYTES = 1 << 28  # of a dump


class Collective(NamedTuple):
    """A collective that a rank has entered."""

    group: str
    number: int  # in its group, from 1; 0: its group was destroyed, and made again by its name
    name: str
    what: str  # type and length of its tensors, where these must be equal on all ranks
    place: str  # the user's own line
    when: int  # nanoseconds since 1970
    is_over: bool = False  # for this rank, as far as is known: it waits there no longer

    @property
    def title(self) -> str:
        """The call in words."""
        shape = f" of {self.what}" if self.what else ""
        return f"{self.name}{shape}{f' ({self.place})' if self.place else ''}"


class Record(NamedTuple):
    """The collectives that one rank has recorded."""

    calls: tuple[Collective, ...]
    members: Mapping[str, frozenset[int]]  # the ranks of each group, by its name
    is_whole: bool = True  # no entry had to make room for a later one


class Mismatch(NamedTuple):
    """Ranks that are in different collectives at the same place of their order."""

    rank: int  # one of the fewest
    words: str


class Asked:
    """A request to one rank for its records."""

    def __init__(self, rank: int, environ: Mapping[str, str]) -> None:
        """Ask the rank; `environ` is its environment. Raises OSError where it does not listen."""
        self.rank = rank
        self._path = f"{environ[flight_recorder.DUMPS[0]]}{rank}"
        self._before = _changed(self._path)
        pipe = machine.open(
            f"{environ[flight_recorder.PIPE]}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK
        )
        try:
            machine.write(pipe, b"1")
        finally:
            machine.close(pipe)

    def answer(self) -> Record | None:
        """The rank's records; None: no complete dump has come yet."""
        if _changed(self._path) == self._before:
            return None
        with suppress(Exception):  # an incomplete dump may raise anything in a parser
            return read(machine.content(self._path, MOST_BYTES))
        return None


def _changed(path: str) -> tuple[int, int]:
    try:
        found = machine.stat(path)
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


class _Plain(pickle.Unpickler):
    """A reader of pickles that hold plain values; it imports and calls nothing."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"a dump holds no {module}.{name}")


def read(data: bytes, apart: str = "") -> Record:
    """Read a dump; `apart` is added to the names of groups.

    A dump that is incomplete, or of another kind, may raise any exception.
    """
    dump = _Plain(io.BytesIO(data)).load()
    members = {
        f"{group['name']}{apart}": frozenset(map(int, json.loads(group["ranks"])))
        for group in dump["pg_config"].values()
        if group["name"]  # not gloo's
    }
    first = min((entry["record_id"] for entry in dump["entries"]), default=0)
    calls = (call._replace(group=call.group + apart) for call in _calls(dump["entries"]))
    return Record(tuple(calls), members, first == 0)


def _calls(entries: list[dict[str, Any]]) -> Iterator[Collective]:
    ids = {entry["process_group"][0]: entry.get("pg_id") for entry in entries}  # the last of each
    for entry in entries:
        if entry.get("is_p2p"):
            continue  # two ranks know of it, and each counts for itself
        name = entry["profiling_name"].partition(":")[2] or entry["profiling_name"]
        frames = entry.get("frames", ())
        at = own(tuple(Frame(each["name"], each["filename"], each["line"]) for each in frames))
        yield Collective(
            str(entry["process_group"][0]),
            int(entry["collective_seq_id"])
            * (entry.get("pg_id") == ids[entry["process_group"][0]]),
            name,
            _what(entry) if name in ALIKE else "",
            place_of(at) if at else "",
            moment(entry["time_created_ns"]),
            bool(entry.get("retired")),
        )


def _what(entry: dict[str, Any]) -> str:
    shapes = zip(entry["input_dtypes"], entry["input_sizes"], strict=False)
    return ", ".join(f"{dtype}[{prod(sizes)}]" for dtype, sizes in shapes)


def moment(ns: Any) -> int:
    """Nanoseconds since 1970, checked because others compute with them.

    Raises ValueError.
    """
    if not 0 <= ns < 1 << 63:
        raise ValueError(ns)
    return int(ns)


def disagreement(records: Mapping[int, Record]) -> str | None:
    """The first collective that not all ranks have entered by the same call, in words.

    Only the records of these ranks count, and only as far back as all of them remember.
    """
    found = list(filter(None, (_first(group, records) for group in names(records))))
    return min(found)[1] if found else None


def names(records: Mapping[int, Record]) -> set[str]:
    """The groups of which these ranks have recorded collectives."""
    return {call.group for record in records.values() for call in record.calls}


def mismatch(records: Mapping[int, Record]) -> Mismatch | None:
    """The first collective that ranks have entered by different calls.

    Ranks that have not entered it may come yet.
    """
    found = list(filter(None, (_first_mismatch(group, records) for group in names(records))))
    return min(found)[1] if found else None


def _first_mismatch(group: str, records: Mapping[int, Record]) -> tuple[int, Mismatch] | None:
    """The first mismatch of a group, and when the first rank entered it."""
    by_rank = entered_by(group, records)
    for number in sorted({n for calls in by_rank.values() for n in calls}):
        entered = {rank: calls[number] for rank, calls in by_rank.items() if number in calls}
        if len({(call.name, call.what) for call in entered.values()}) > 1:
            kinds = _grouped({rank: call.title for rank, call in entered.items()})
            (few, _), (others, _), *_ = kinds
            nobody_knows = len(few) == len(others)
            either = (
                f"{ranks_of(few)} or {ranks_of(others)} is in the wrong one: "
                if nobody_knows
                else ""
            )
            words = "; ".join(f"{ranks_of(ranks)} in {title}" for ranks, title in kinds)
            when = min(call.when for call in entered.values())
            return when, Mismatch(few[0], f"{either}collective {number} of group {group}: {words}")
    return None


def _first(group: str, records: Mapping[int, Record]) -> tuple[int, str] | None:
    """The first collective of a group on which its members disagree; None: they agree.

    The result is when it was entered, and by which ranks.
    """
    by_rank = entered_by(group, records)
    for number in numbers(by_rank):
        if found := _differences(number, by_rank):
            when, words = found
            return when, f"collective {number} of group {group}: {'; '.join(words)}"
    return None


def _differences(
    number: int, by_rank: Mapping[int, Mapping[int, Collective]]
) -> tuple[int, list[str]] | None:
    """When the first rank entered a collective, and how the other ranks differ.

    None: all have entered it by the same call.
    """
    entered = {rank: calls[number] for rank, calls in by_rank.items() if number in calls}
    absent = {rank: _last(by_rank[rank], number) for rank in missing(entered, by_rank)}
    kinds = _grouped({rank: call.title for rank, call in entered.items()})
    if len({(call.name, call.what) for call in entered.values()}) == 1:
        if not absent:
            return None
        kinds = [(sorted(entered), kinds[0][1])]  # though in different lines, perhaps
    words = [f"{ranks_of(ranks)} in {title}" for ranks, title in kinds]
    words += [f"{ranks_of(ranks)} not there, {last}" for ranks, last in _grouped(absent)]
    return min(call.when for call in entered.values()), words


def missing(entered: Mapping[int, Collective], members: Iterable[int]) -> frozenset[int]:
    """The ranks that have not entered a collective in which others wait."""
    is_over = all(call.is_over for call in entered.values())
    return frozenset() if is_over else frozenset(members) - frozenset(entered)


def numbers(by_rank: Mapping[int, Mapping[int, Collective]]) -> list[int]:
    """The numbers of a group's collectives that are as late as those that all members remember."""
    remembered = max((min(calls) for calls in by_rank.values() if calls), default=0)
    return sorted({n for calls in by_rank.values() for n in calls if n >= remembered})


def entered_by(group: str, records: Mapping[int, Record]) -> dict[int, dict[int, Collective]]:
    """The collectives of each member of a group, by their numbers.

    A member that may have forgotten that it ever entered any is left out; so are collectives from
    before some rank made the group again, as all ranks had destroyed it by then.
    """
    by_rank = {
        rank: [call for call in record.calls if call.group == group]
        for rank, record in records.items()
    }
    gone = _gone(by_rank)
    named = [record.members[group] for record in records.values() if group in record.members]
    members = frozenset().union(*named) or {rank for rank, calls in by_rank.items() if calls}
    return {
        rank: {call.number: call for call in calls if call.when > gone}
        for rank, calls in by_rank.items()
        if rank in members and (calls or records[rank].is_whole)
    }


def _gone(by_rank: Mapping[int, Iterable[Collective]]) -> int:
    """When the last collective was entered of a group that has been made again since.

    -1: there is none.
    """
    whens = (call.when for calls in by_rank.values() for call in calls if call.number == 0)
    return max(whens, default=-1)


def _last(calls: Mapping[int, Collective], before: int) -> str:
    earlier = [number for number in calls if number < before]
    if not earlier:
        return "with no collective before it"
    return f"last in {max(earlier)}, {calls[max(earlier)].title}"


def _grouped(said: Mapping[int, str]) -> list[tuple[list[int], str]]:
    """Ranks with the same text, grouped; the smallest group first."""
    groups: dict[str, list[int]] = {}
    for rank in sorted(said):
        groups.setdefault(said[rank], []).append(rank)
    return sorted(((ranks, words) for words, ranks in groups.items()), key=lambda g: len(g[0]))
