"""spawnlaunch.launch: a function in every rank, and what becomes of it."""

import os
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

import spawnlaunch
from spawnlaunch import LaunchError, UsageError, WorkerError, launch
from tests.calling import functions
from tests.support.processes import processes_with


def test_what_each_rank_returns_is_the_result_by_rank(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch(functions.greet, "hello", nproc=2) == ["hello 0 of 2", "hello 1 of 2"]
    shown = capfd.readouterr()
    assert sorted(shown.out.splitlines()) == ["[0] hello is printed", "[1] hello is printed"]
    lines = shown.err.splitlines()
    assert [line for line in lines if "complains" in line] != []
    assert sum(line.startswith("spawnlaunch: rank ") for line in lines) == 2


def test_output_comes_out_where_sys_stdout_is(capsys: pytest.CaptureFixture[str]) -> None:
    launch(functions.greet, "é", quiet=True)
    assert capsys.readouterr() == ("é is printed\n", "and complains\n")


def test_ranks_sit_on_cpus_of_their_own() -> None:
    (world, cpus), (other, others) = launch(functions.where, nproc=2, quiet=True)
    assert (world.rank, world.size, world.local_rank, world.local_size) == (0, 2, 0, 2)
    assert (other.rank, other.node_rank, other.nodes, other.restart) == (1, 0, 1, 0)
    assert world.master_port == other.master_port > 0
    assert len(os.sched_getaffinity(0)) < 2 or not cpus & others


def test_more_ranks_than_cpus_share_them() -> None:
    nproc = len(os.sched_getaffinity(0)) + 2
    assert launch(functions.sized, 1, nproc=nproc, quiet=True)[:3] == [b"0", b"1", b"2"]


def test_a_result_may_be_larger_than_any_pipe() -> None:
    small, large = launch(functions.sized, 50_000_000, nproc=2, quiet=True)
    assert (len(small), large[-1:]) == (50_000_000, b"1")


def test_a_lambda_and_what_it_has_seen_go_by_value() -> None:
    pytest.importorskip("cloudpickle")
    seen = {"a": 1}
    assert launch(lambda more: seen["a"] + more, 2, nproc=2, quiet=True) == [3, 3]


def test_it_can_be_called_from_a_thread() -> None:
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.extend(launch(functions.sized, 2, quiet=True)))
    thread.start()
    thread.join()
    assert found == [b"00"]


def test_the_first_failure_is_raised_with_its_traceback_and_rank() -> None:
    with pytest.raises(WorkerError) as caught:
        launch(functions.unlucky, 1, "value", nproc=2, quiet=True)
    error = caught.value
    assert (error.rank, error.status) == (1, 1)
    assert str(error).startswith("rank 1: ValueError: bad\n\nTraceback (most recent")
    assert "raise failures[kind]" in error.traceback
    assert "worker.py" not in error.traceback
    assert repr(error.__cause__) == "ValueError('bad')"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("stubborn", "rank 0: tests.calling.functions.Stubborn: a b"),
        ("sealed", "rank 0: tests.calling.functions.Sealed: sealed"),
    ],
)
def test_an_exception_that_pickle_cannot_make_anew_comes_over(kind: str, words: str) -> None:
    with pytest.raises(WorkerError) as caught:
        launch(functions.unlucky, 0, kind, quiet=True)
    assert str(caught.value).partition("\n")[0] == words
    assert isinstance(caught.value.__cause__, (functions.Stubborn, functions.Sealed))
    shown = "".join(traceback.format_exception(caught.value))
    assert "in unlucky" in shown


def test_a_rank_that_dies_is_named() -> None:
    with pytest.raises(WorkerError, match=r"^rank 0 on .* died of SIGKILL") as caught:
        launch(functions.unlucky, 0, "signal", nproc=2, quiet=True)
    assert (caught.value.status, caught.value.rank) == (137, 0)


def test_a_result_that_cannot_be_pickled_is_refused_where_it_is() -> None:
    with pytest.raises(WorkerError, match=r"returned a lock that cannot"):
        launch(functions.locked, quiet=True)


def test_flags_are_the_launchers(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    kept = launch(
        *(functions.second_time, str(tmp_path)),
        nproc=2,
        max_restarts=1,
        quiet=True,
        result=result,
        bind="none",
    )
    assert kept == [1, 1]
    assert '"restarts"' in result.read_text()
    assert (tmp_path / "0.0").exists() or (tmp_path / "0.1").exists()


def test_a_launch_that_takes_too_long_is_ended() -> None:
    with pytest.raises(LaunchError, match="the time of the launch") as caught:
        launch(functions.unlucky, 5, "value", timeout=2.5, grace=1, quiet=True)
    assert caught.value.status == 124


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"max_restart": 1}, "max_restart= is no flag of the launcher; did you mean max_restarts?"),
        (
            {"name": "x"},
            "name= is a parameter of greet, and no flag of the launcher; launch",
        ),
        ({"xyzzy": 1}, "xyzzy= is no flag of the launcher; spawnlaunch --help lists the flags"),
        ({"max_restarts": "x"}, "--max-restarts: 'x' is not a whole number; type a number from 0"),
        ({"max_restarts": 1.5}, "--max-restarts: '1.5' is not a whole number"),
        ({"max_restarts": True}, "max_restarts=True: a bool cannot be a flag's value"),
        ({"nproc": 0}, "--nproc: '0' is not a number of workers"),
        ({"nproc": object}, "a type cannot be a flag's value; type it as on the command line"),
        ({"quiet": 1}, "quiet=1 is neither True nor False; type one of them"),
        ({"bind": "nod"}, "--bind: 'nod' is no way to bind; choose one of auto, node"),
        ({"debug": 0}, "debug= is not available here: it needs the terminal"),
        ({"completion": "bash"}, "completion= is not available here: it is for a shell"),
        ({"explain": True}, "explain= is not available here: call spawnlaunch.explain_launch"),
        ({"allowed_cpus": "0"}, "--sysfs-root and --allowed-cpus need --explain"),
    ],
)
def test_a_wrong_flag_starts_nothing(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        launch(functions.greet, "no", **flags)
    assert said in str(caught.value)


def test_what_only_the_launcher_can_refuse_is_raised_here_too() -> None:
    with pytest.raises(UsageError, match=r"9999.*choose among these"):
        launch(functions.greet, "no", nproc=2, bind="0:9999")


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(UsageError, match=r"type launch\(function, \*args\), not function"):
        launch("greet")  # type: ignore[arg-type]


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(UsageError, match=r"cannot be sent"):
        launch(functions.greet, threading.Lock())  # type: ignore[arg-type]


def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("MARK_OF_THIS_TEST", mark := f"mark-{os.urandom(8).hex()}")
    launch(functions.sized, 1, nproc=2, quiet=True)
    with pytest.raises(WorkerError):
        launch(functions.unlucky, 1, "value", nproc=2, quiet=True)
    assert list(tmp_path.iterdir()) == []
    assert processes_with(mark) == []


def test_outside_of_a_launch_there_is_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spawnlaunch.current_world() is None
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    assert spawnlaunch.current_world() == (1, 1, 1, 1, 0, 1, "", 0, 0)
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(UsageError, match=r"; type unset RANK"):
        spawnlaunch.current_world()
