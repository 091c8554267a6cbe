"""The flight recorder: records that torch itself has written, and the first difference in them."""

import json
import pickle
import re
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spawnlaunch.rollcall import asked, flight
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


def test_ranks_that_agree_are_not_accused():
    same = [entry(1), entry(2, "broadcast")]
    assert flight.disagreement({0: record(*same), 1: record(*same)}) is None
    assert flight.disagreement({}) is None


def test_the_first_collective_that_a_rank_has_not_entered_is_named():
    records = {
        0: record(entry(87, line=80), entry(88), entry(89)),
        1: record(entry(87, line=80)),
        2: record(entry(87, line=80), entry(88)),
    }
    assert flight.disagreement(records) == (
        "collective 88 of group 0: ranks 0,2 in all_reduce of Float[4] (train.py:88); "
        "rank 1 not there, last in 87, all_reduce of Float[4] (train.py:80)"
    )


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (entry(2, "broadcast", line=90), "rank 1 in broadcast of Float[4] (train.py:90)"),
        (entry(2, input_sizes=[[5]]), "rank 1 in all_reduce of Float[5] (train.py:88)"),
    ],
)
def test_another_collective_or_another_shape_is_a_difference(other: dict[str, Any], words: str):
    records = {rank: record(entry(1), entry(2)) for rank in (0, 2)}
    records[1] = record(entry(1), other)
    assert flight.disagreement(records) == (
        f"collective 2 of group 0: {words}; ranks 0,2 in all_reduce of Float[4] (train.py:88)"
    )


def test_what_is_gathered_may_differ_in_size_and_lines_may_differ():
    one = record(entry(1, "all_gather", input_sizes=[[3]]), entry(2, line=5))
    two = record(entry(1, "all_gather", input_sizes=[[4]]), entry(2, line=6))
    assert flight.disagreement({0: one, 1: two}) is None


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


def test_what_a_rank_has_forgotten_is_no_difference():
    long, short = record(*map(entry, range(1, 9))), record(*map(entry, range(6, 9)))
    assert flight.disagreement({0: long, 1: short}) is None


def test_a_rank_that_may_have_forgotten_all_of_a_group_is_not_missed():
    other = entry(1, process_group=("1", ""), time_created_ns=3)
    there, busy = record(entry(1), other), [entry(n) for n in (1, 2, 3)]
    assert flight.disagreement({0: there, 1: record(*busy[:1])}) is not None
    assert flight.disagreement({0: there, 1: record(*busy[:1], first=7)}) is None


def test_of_several_groups_the_one_that_differs_first_counts():
    other = ("1", "tensor parallel")
    calls = entry(5, time_created_ns=50), entry(1, time_created_ns=40, process_group=other)
    records = {0: record(*calls), 1: record()}
    words = flight.disagreement(records) or ""
    assert words.startswith("collective 1 of group 1: rank 0 in all_reduce")
    assert words.endswith("rank 1 not there, with no collective before it")


def test_a_group_that_was_made_anew_counts_from_one_again():
    old = [entry(number, pg_id=0) for number in range(1, 51)]
    one, two = (entry(n, "broadcast", pg_id=2, time_created_ns=50 + n) for n in (1, 2))
    for last in ([], [one]):
        records = {0: record(*old, one, two), 1: record(*old, *last)}
        assert flight.mismatch(records) is None
        words = flight.disagreement(records) or ""
        assert words.startswith(f"collective {1 + len(last)} of group 0: rank 0 in broadcast")
        assert "rank 1 not there" in words


def test_a_rank_that_is_no_member_of_a_group_is_not_missed():
    there = record(entry(1), ranks="[0]")
    assert flight.disagreement({0: there, 1: record(ranks="[0]")}) is None


def test_a_pickle_that_would_call_something_is_not_read():
    with pytest.raises(pickle.UnpicklingError, match="holds no"):
        flight.read(pickle.dumps({"entries": Path("/")}))


def test_names_that_the_user_has_given_stay_and_without_records_there_are_none():
    assert flight.variables({}, "/tmp/x") == {}
    assert flight.variables({"TORCH_FR_BUFFER_SIZE": "0"}, "/tmp/x") == {}
    given = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "99", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine/r"}
    assert flight.variables(given, "/tmp/x") == {
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
