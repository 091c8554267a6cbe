"""The flight recorder: records as torch writes them, and the first difference in them."""

import json
import pickle
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spawnlaunch.hang import asked, culprits, flight


def entry(number: int, name: str = "all_reduce", **more: Any) -> dict[str, Any]:
    """As torch 2.13 writes it, but for what is not read."""
    return {
        "process_group": ("0", "default_pg"), "collective_seq_id": number,
        "profiling_name": f"nccl:{name}", "time_created_ns": number, "input_sizes": [[4]],
        "input_dtypes": ["Float"], "state": "started", "is_p2p": False, **more,
    }  # fmt: skip


def dump(*entries: dict[str, Any], ranks: str = "[0, 1, 2]", first: int = 0) -> bytes:
    """What a rank has recorded; with `first` so many entries have had to make room."""
    groups = {name: {"name": name, "desc": "", "ranks": ranks} for name in ("0", "1")}
    listed = [{"record_id": id, **each} for id, each in enumerate(entries, first)]
    return pickle.dumps({"version": "2.10", "pg_config": groups, "entries": listed})


def record(*entries: dict[str, Any], ranks: str = "[0, 1, 2]", first: int = 0) -> flight.Record:
    return flight.read(dump(*entries, ranks=ranks, first=first))


ALL_88, FIRST = "ranks 0,2 in all_reduce of Float[4]", [entry(87)]
GATHERED = [[entry(1, "all_gather", input_sizes=[[n]]), entry(2)] for n in (3, 4)]
OF_ANOTHER = entry(1, time_created_ns=3, process_group=("1", "tensor parallel"))
OLD = [entry(number, pg_id=0) for number in range(1, 51)]
ANEW = [entry(n, "broadcast", pg_id=2, time_created_ns=50 + n) for n in (1, 2)]
NOW = 100  # nanoseconds
# What each rank has recorded, and what is said of it: a mismatch, or whom the others wait for.
DUMPS: dict[str, tuple[dict[int, flight.Record], str | list[int]]] = {
    "no rank": ({}, []),
    "ranks agree": (dict.fromkeys((0, 1), record(entry(1), entry(2, "broadcast"))), []),
    "sizes that are gathered": (dict(enumerate(record(*g) for g in GATHERED)), []),
    "forgotten": ({0: record(*map(entry, range(1, 9))), 1: record(*map(entry, (6, 7, 8)))}, []),
    "forgotten, all of a group": ({0: record(entry(1), OF_ANOTHER), 1: record(entry(1), first=7)},
                                  []),
    "no member": ({0: record(entry(1), ranks="[0]"), 1: record(ranks="[0]")}, []),
    "not entered": (
        {0: record(*FIRST, entry(88), entry(89)), 1: record(*FIRST), 2: record(*FIRST, entry(88))},
        [1]),
    "another collective": (
        {0: record(*map(entry, (1, 2))), 2: record(*map(entry, (1, 2))),
         1: record(entry(1), entry(2, "broadcast"))},
        "collective 2 of group 0: rank 1 in broadcast of Float[4]; " + ALL_88),
    "another shape": (
        {0: record(*map(entry, (1, 2))), 2: record(*map(entry, (1, 2))),
         1: record(entry(1), entry(2, input_sizes=[[5]]))},
        "collective 2 of group 0: rank 1 in all_reduce of Float[5]; " + ALL_88),
    "of several groups the first": (
        {0: record(entry(5, time_created_ns=50), OF_ANOTHER), 1: record()}, [1]),
    "a group made anew": ({0: record(*OLD, *ANEW), 1: record(*OLD)}, [1]),
    "a group made anew, later": ({0: record(*OLD, *ANEW), 1: record(*OLD, ANEW[0])}, [1]),
    "two groups for each other": (
        {0: record(entry(1)), 1: record(OF_ANOTHER)}, [0, 1]),
}  # fmt: skip


@pytest.mark.parametrize(("records", "expected"), DUMPS.values(), ids=DUMPS)
def test_the_first_difference_is_named(
    records: dict[int, flight.Record], expected: str | list[int]
) -> None:
    answers = {rank: asked.Testimony("", (), one, NOW, 0.0) for rank, one in records.items()}
    verdict = culprits.judged(answers, hang_s=0.0)
    if isinstance(expected, str):
        assert verdict.mismatch
        assert verdict.mismatch.words == expected
    else:
        assert verdict.mismatch is None
        assert [one.rank for one in verdict.culprits if one.is_hang] == expected


def test_of_what_is_reduced_the_length_counts_and_not_the_shape():
    shapes = ([[2, 6]], [[12]], [[3, 2, 2]])
    records = {rank: record(entry(1, input_sizes=each)) for rank, each in enumerate(shapes)}
    assert flight.mismatch(records) is None
    other = record(entry(1, input_sizes=[[2, 5]]), ranks="[0, 1, 2, 3]")
    rank, words = flight.mismatch(records | {3: other}) or (0, "")
    assert (rank, re.findall(r"Float\[\d+\]", words)) == (3, ["Float[10]", "Float[12]"])


def test_a_group_that_has_gloo_beside_nccl_counts_for_each():
    """Ranks whose recorders keep the last 20 of each, and that are not all equally far."""
    for seed in range(100):
        draw = Random(seed)
        names = ("gloo:barrier", "nccl:all_reduce")
        calls = draw.choices(names, [1, draw.randint(1, 9)], k=100)
        told = {}
        for rank in range(3):
            mine = [*enumerate(calls[: draw.randint(90, 100)])]
            made = ([i for i, each in mine if each == name] for name in names)
            dumps = [
                dump(*[entry(n, profiling_name=name, time_created_ns=i)
                       for n, i in enumerate(whens, 1)][-20:], first=max(0, len(whens) - 20))
                for name, whens in zip(names, made, strict=True)
            ]  # fmt: skip
            head = {"stacks": [], "looks": [], "when": 100, "seconds": 0.0, "threads": "",
                    "groups": {"0": [0, 1, 2]}, "dumps": [*map(len, dumps)]}  # fmt: skip
            told[rank] = asked.parse_testimony(
                json.dumps(head).encode() + b"\n" + b"".join(dumps)
            ).record
        assert flight.mismatch(told) is None
        assert flight.names(told) == {"0", "0 of gloo"}


def test_a_pickle_that_would_call_something_is_not_read():
    with pytest.raises(pickle.UnpicklingError, match="holds no"):
        flight.read(pickle.dumps({"entries": Path("/")}))
