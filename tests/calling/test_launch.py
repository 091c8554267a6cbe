"""spawnlaunch.launch: a function in every rank, what it returns, and which flags it takes."""

import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spawnlaunch
from spawnlaunch import LaunchError, UsageError, launch
from tests.calling import functions
from tests.support.matrix import mostly_full


def test_results_come_by_rank_and_output_with_its_prefix(
    capfd: pytest.CaptureFixture[str],
) -> None:
    (first, other) = launch(functions.greet, "hello", nproc=2)
    shown = capfd.readouterr()
    assert sorted(shown.out.splitlines()) == ["[0] hello is printed", "[1] hello is printed"]
    lines = shown.err.splitlines()
    assert [line for line in lines if "complains" in line] != []
    assert sum(line.startswith("spawnlaunch: rank ") for line in lines) == 2
    (name, world, cpus), (_, other_world, other_cpus) = first, other
    assert name == "hello"
    assert (world.rank, world.size, world.local_rank, world.local_size) == (0, 2, 0, 2)
    placed = (other_world.rank, other_world.node_rank, other_world.nodes, other_world.restart)
    assert placed == (1, 0, 1, 0)
    assert world.master_port == other_world.master_port > 0
    assert len(os.sched_getaffinity(0)) < 2 or not cpus & other_cpus


def test_a_thread_may_call_it_and_output_comes_out_where_sys_stdout_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found: list[Any] = []
    call = functools.partial(launch, functions.greet, "é", quiet=True)
    thread = threading.Thread(target=lambda: found.extend(call()))
    thread.start()
    thread.join()
    assert [name for name, *_ in found] == ["é"]
    assert capsys.readouterr() == ("é is printed\n", "and complains\n")


@pytest.mark.full
def test_more_ranks_than_cpus_share_them_and_a_result_may_be_larger_than_any_pipe() -> None:
    nproc = len(os.sched_getaffinity(0)) + 2
    found = launch(functions.sized, 20_000_000, nproc=nproc, quiet=True)
    assert [(len(each), each[-1:]) for each in found[:2]] == [
        (20_000_000, b"0"),
        (20_000_000, b"1"),
    ]


SEEN = {"a": 1}


FUNCTIONS = [
    (lambda more: SEEN["a"] + more, 4),
    (functools.partial(functions.soon), 3),
    (functions.soon, 3),
    (lambda more: functions.soon(more), 3),
]


@pytest.mark.parametrize(("function", "result"), mostly_full(FUNCTIONS, at_once=2))
def test_a_function_may_be_a_lambda_or_async(function: Callable[[int], Any], result: int) -> None:
    if "lambda" in repr(function):
        pytest.importorskip("cloudpickle")
    assert launch(function, 3, nproc=2, quiet=True) == [result, result]


def test_flags_are_the_launchers(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    flags = {"nproc": 2, "max_restarts": 1, "quiet": True, "result": result, "bind": "none"}
    assert launch(functions.second_time, str(tmp_path), **flags) == [1, 1]
    assert '"restarts"' in result.read_text()
    assert (tmp_path / "0.0").exists() or (tmp_path / "0.1").exists()


@pytest.mark.full
def test_a_launch_that_takes_too_long_is_ended() -> None:
    with pytest.raises(LaunchError, match="the time of the launch") as caught:
        launch(functions.fails, "waits", timeout=2.5, grace=1, quiet=True)
    assert caught.value.status == 124


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"xyzzy": 1}, "unknown flag --xyzzy=1"),
        ({"max_restarts": 1.5}, "--max-restarts: '1.5' is not a whole number"),
        ({"max_restarts": True}, "--max-restarts: 'True' is not a whole number"),
        ({"nproc": object}, "a type cannot be a flag's value; write it as on the command line"),
        ({"quiet": 1}, "--quiet takes no value"),
        ({"bind": "nod"}, "--bind: unknown value 'nod'; use auto, node"),
        ({"debug": 0}, "debug= is not available here: it needs the terminal"),
        ({"explain": True}, "explain= is not available here: call spawnlaunch.explain_launch"),
        ({"allowed_cpus": "0"}, "--sysfs-root and --allowed-cpus need --explain"),
        ({"nproc": 2, "bind": "0:9999"}, "choose among these"),  # which the launcher refuses
    ],
)
def test_a_wrong_flag_starts_nothing(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        launch(functions.greet, "no", **flags)
    assert said in str(caught.value)


def test_what_is_no_function_or_cannot_be_sent_is_refused() -> None:
    with pytest.raises(UsageError, match=r"use launch\(function, \*args\), not function"):
        launch("greet")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"cannot be sent"):
        launch(functions.greet, threading.Lock())  # type: ignore[arg-type]


def test_outside_of_a_launch_there_is_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spawnlaunch.current_world() is None
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    assert spawnlaunch.current_world() == (1, 1, 1, 1, 0, 1, "", 0, 0)
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(UsageError, match=r"; unset RANK"):
        spawnlaunch.current_world()
