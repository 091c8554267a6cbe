"""The flight recorder: records that torch itself has written, and the first difference in them."""

import json
import pickle
import re
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spawnlaunch.hang import asked, flight
from spawnlaunch.workers import flight_recorder
from tests.support.processes import until
from tests.support.watching import launched

WORKER = Path(__file__).parent / "recorded.py"


def entry(number: int, name: str = "all_reduce", line: int = 88, **more: Any) -> dict[str, Any]:
    """As torch 2.13 writes it, but for what is not read."""
    frames = [
        {"name": name, "filename": "/opt/lib/python3.11/site-packages/torch/d.py", "line": 3245},
        {"name": "step", "filename": "/home/me/train.py", "line": line},
    ]
    return {
        "frames": frames, "process_group": ("0", "default_pg"), "collective_seq_id": number,
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


def at(number: int, line: int = 88) -> str:
    return f"{number}, all_reduce of Float[4] (train.py:{line})"


ALL_88, FIRST = "ranks 0,2 in all_reduce of Float[4] (train.py:88)", [entry(87, line=80)]
GATHERED = [[entry(1, "all_gather", input_sizes=[[n]]), entry(2, line=n)] for n in (3, 4)]
OF_ANOTHER = entry(1, time_created_ns=3, process_group=("1", "tensor parallel"))
OLD = [entry(number, pg_id=0) for number in range(1, 51)]
ANEW = [entry(n, "broadcast", pg_id=2, time_created_ns=50 + n) for n in (1, 2)]
# What each rank has recorded, and what is said of it.
DUMPS = {
    "no rank": ({}, None),
    "ranks agree": (dict.fromkeys((0, 1), record(entry(1), entry(2, "broadcast"))), None),
    "sizes that are gathered, and lines": (dict(enumerate(record(*g) for g in GATHERED)), None),
    "forgotten": ({0: record(*map(entry, range(1, 9))), 1: record(*map(entry, (6, 7, 8)))}, None),
    "forgotten, all of a group": ({0: record(entry(1), OF_ANOTHER), 1: record(entry(1), first=7)},
                                  None),
    "no member": ({0: record(entry(1), ranks="[0]"), 1: record(ranks="[0]")}, None),
    "not entered": (
        {0: record(*FIRST, entry(88), entry(89)), 1: record(*FIRST), 2: record(*FIRST, entry(88))},
        f"collective 88 of group 0: {ALL_88}; rank 1 not there, last in {at(87, 80)}"),
    "another collective": (
        {0: record(*map(entry, (1, 2))), 2: record(*map(entry, (1, 2))),
         1: record(entry(1), entry(2, "broadcast", line=90))},
        f"collective 2 of group 0: rank 1 in broadcast of Float[4] (train.py:90); {ALL_88}"),
    "another shape": (
        {0: record(*map(entry, (1, 2))), 2: record(*map(entry, (1, 2))),
         1: record(entry(1), entry(2, input_sizes=[[5]]))},
        f"collective 2 of group 0: rank 1 in all_reduce of Float[5] (train.py:88); {ALL_88}"),
    "of several groups the first": (
        {0: record(entry(5, time_created_ns=50), OF_ANOTHER), 1: record()},
        "collective 1 of group 1: rank 0 in all_reduce of Float[4] (train.py:88); "
        "rank 1 not there, with no collective before it"),
    "a group made anew": (
        {0: record(*OLD, *ANEW), 1: record(*OLD)},
        "collective 1 of group 0: rank 0 in broadcast of Float[4] (train.py:88); "
        "rank 1 not there, with no collective before it"),
    "a group made anew, later": (
        {0: record(*OLD, *ANEW), 1: record(*OLD, ANEW[0])},
        "collective 2 of group 0: rank 0 in broadcast of Float[4] (train.py:88); "
        "rank 1 not there, last in 1, broadcast of Float[4] (train.py:88)"),
}  # fmt: skip


@pytest.mark.parametrize(("records", "words"), DUMPS.values(), ids=DUMPS)
def test_the_first_difference_is_named(records: dict[int, flight.Record], words: str | None):
    assert flight.disagreement(records) == words
    if words and "not there" in words:
        assert flight.mismatch(records) is None


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
            told[rank] = asked.answer(json.dumps(head).encode() + b"\n" + b"".join(dumps)).record
        assert flight.mismatch(told) is None
        assert flight.names(told) == {"0", "0 of gloo"}


def test_a_pickle_that_would_call_something_is_not_read():
    with pytest.raises(pickle.UnpicklingError, match="holds no"):
        flight.read(pickle.dumps({"entries": Path("/")}))


def test_names_that_the_user_has_given_stay_and_without_records_there_are_none():
    assert flight_recorder.variables({}, "/tmp/x") == {}
    assert flight_recorder.variables({"TORCH_FR_BUFFER_SIZE": "0"}, "/tmp/x") == {}
    given = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "99", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine/r"}
    assert flight_recorder.variables(given, "/tmp/x") == {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/tmp/x/ask-",
        "TORCH_FR_DUMP_TEMP_FILE": "/mine/r",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine/r",
    }


@pytest.mark.full
def test_ranks_are_asked_for_torchs_records_and_the_one_that_is_missing_is_named(tmp_path: Path):
    words = ("--nproc", 3, "--stack-on-usr2", WORKER)
    on = {"TORCH_FR_BUFFER_SIZE": "100"}
    with launched(*words, directory=tmp_path, environ=on) as one:
        one.read_until(3)
        while not re.search(  # the others may not have come so far, or not listen yet
            r"flight recorder: collective 3 of group 0: ranks 0,2 in all_reduce of Float\[4\]; "
            r"rank 1 not there, last in 2, broadcast of Float\[4\]",
            one.stderr,
        ):
            assert one.stderr.count("flight recorder:") < 30, one.stderr
            times = one.stderr.count("flight recorder:")
            one.send(signal.SIGUSR2)
            until(lambda n=times: one.stderr.count("flight recorder:") > n, "the records are read")
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM
