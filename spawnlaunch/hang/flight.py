"""The flight recorder of torch.distributed: its dumps, and the first call in which ranks differ.

A dump is a pickle of plain values (torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.x;
torch's own reader is torch.distributed.flight_recorder):

    {"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
     "entries": [{"record_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 88,
                  "is_p2p": False, "profiling_name": "nccl:all_reduce", "state": "started",
                  "input_sizes": [[4]], "input_dtypes": ["Float"], "time_created_ns":
                  1795344579414854513, "retired": True}, ...]}

The entries are the last ones, as many as the buffer has room for (TORCH_FR_BUFFER_SIZE).
"""

from __future__ import annotations

import io
import json
import pickle
from math import prod

from spawnlaunch.base import records
from spawnlaunch.hang import groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, NoReturn

# Collectives with equal sizes on all ranks; the sizes of gathered or sent tensors may differ.
ALIKE = ("all_reduce", "allreduce", "broadcast", "reduce")
LAST_NS = (1 << 63) - 1  # of moments


class Collective(records.NamedTuple):
    """A collective that a rank has entered."""

    group: str
    number: int  # in its group, from 1; 0: its group was destroyed, and made again by its name
    name: str
    what: str  # type and length of its tensors, where these must be equal on all ranks
    place: str  # the user's own line; "" is not known, as torch's records do not have it
    when: int  # nanoseconds since 1970
    is_over: bool = False  # for this rank, as far as is known: it waits there no longer

    @property
    def title(self) -> str:
        """The call in words."""
        shape = f" of {self.what}" if self.what else ""
        return f"{self.name}{shape}{f' ({self.place})' if self.place else ''}"


class Record(records.NamedTuple):
    """The collectives that one rank has recorded."""

    calls: tuple[Collective, ...]
    members: Mapping[str, frozenset[int]]  # the ranks of each group, by its name
    is_whole: bool = True  # no entry had to make room for a later one


class Mismatch(records.NamedTuple):
    """Ranks that are in different collectives at the same place of their order."""

    rank: int  # one of the fewest
    words: str


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
        shapes = zip(entry["input_dtypes"], entry["input_sizes"], strict=False)
        tensors = ", ".join(f"{dtype}[{prod(sizes)}]" for dtype, sizes in shapes)
        group = entry["process_group"][0]
        yield Collective(
            str(group),
            int(entry["collective_seq_id"]) * (entry.get("pg_id") == ids[group]),
            name,
            tensors if name in ALIKE else "",
            "",
            moment(entry["time_created_ns"]),
            bool(entry.get("retired")),
        )


def moment(ns: Any) -> int:
    """Nanoseconds since 1970, checked because others compute with them.

    Raises ValueError.
    """
    if not 0 <= ns <= LAST_NS:
        raise ValueError(ns)
    return int(ns)


def names(recorded: Mapping[int, Record]) -> set[str]:
    """The groups of which these ranks have recorded collectives."""
    return {call.group for record in recorded.values() for call in record.calls}


def mismatch(recorded: Mapping[int, Record]) -> Mismatch | None:
    """The first collective that ranks have entered by different calls.

    Ranks that have not entered it may come yet.
    """
    firsts = [*filter(None, (_first_mismatch(group, recorded) for group in names(recorded)))]
    return min(firsts)[1] if firsts else None


def _first_mismatch(group: str, recorded: Mapping[int, Record]) -> tuple[int, Mismatch] | None:
    """The first mismatch of a group, and when the first rank entered it."""
    by_rank = entered_by(group, recorded)
    for number in sorted({n for calls in by_rank.values() for n in calls}):
        entered = {rank: calls[number] for rank, calls in by_rank.items() if number in calls}
        if len({(call.name, call.what) for call in entered.values()}) > 1:
            by_title: dict[str, list[int]] = {}
            for rank, call in sorted(entered.items()):
                by_title.setdefault(call.title, []).append(rank)
            kinds = sorted(by_title.items(), key=lambda kind: len(kind[1]))
            words = "; ".join(f"{groups.ranks_of(ranks)} in {title}" for title, ranks in kinds)
            (_, few), (_, others), *_ = kinds
            if len(few) == len(others):
                either = f"{groups.ranks_of(few)} or {groups.ranks_of(others)}"
                words = f"{either} is in the wrong one: {words}"
            when = min(call.when for call in entered.values())
            return when, Mismatch(few[0], f"collective {number} of group {group}: {words}")
    return None


def entered_by(group: str, recorded: Mapping[int, Record]) -> dict[int, dict[int, Collective]]:
    """The collectives of each member of a group, by their numbers.

    A member that may have forgotten that it ever entered any is left out; so are collectives from
    before some rank made the group again, as all ranks had destroyed it by then.
    """
    by_rank = {
        rank: [call for call in record.calls if call.group == group]
        for rank, record in recorded.items()
    }
    remade = (call.when for calls in by_rank.values() for call in calls if call.number == 0)
    last_dead = max(remade, default=-1)  # the last call in a group that has been made again since
    named = [record.members[group] for record in recorded.values() if group in record.members]
    members = frozenset().union(*named) or {rank for rank, calls in by_rank.items() if calls}
    return {
        rank: {call.number: call for call in calls if call.when > last_dead}
        for rank, calls in by_rank.items()
        if rank in members and (calls or recorded[rank].is_whole)
    }
