"""How a function may end: what it raises, by itself and with its causes; what ends it; nothing."""

import functools
import os
import re
import sys
import threading
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch import LaunchError, WorkerError, launch
from tests.calling import functions
from tests.support.matrix import mostly_full
from tests.support.ports import free_port
from tests.support.processes import processes_with

HOST = os.uname().nodename
RETURNED = "with status 0 before its function"
# How a rank fails, the first line of what is raised, its status and its cause.
ENDS = [
    (functions.fails, "value", "rank 1: ValueError: bad", 1, "ValueError('bad')"),
    (functions.fails, "killed", f"rank 1 on {HOST} .* died of SIGKILL", 137, "None"),
    (functions.fails, "os._exit", f"rank 1 on {HOST} exited {RETURNED}", 1, "None"),
    (functions.fails, "sys.exit", r"rank 1: sys.exit\(0\) before the function", 1, "SystemExit()"),
    (functions.fails, "sealed", "rank 1: tests.calling.functions.Sealed: sealed", 1, "Exception("),
    (functions.fails, "stubborn", "rank 1: tests.calling.functions.Stubborn: a b", 1, "Exception("),
    (functions.fails, "exec", f"rank 1 on {HOST} exited {RETURNED}", 1, "None"),
    (functions.locked, "", "returned a lock that cannot", 1, "TypeError("),
    (functions.several, "", "an async_generator that cannot", 1, "TypeError("),
]


@pytest.mark.parametrize(("function", "how", "words", "status", "cause"), mostly_full(ENDS, 5))
def test_a_failure_is_raised_and_a_quiet_launch_says_and_leaves_nothing(
    function: Callable[..., Any], how: str, words: str, status: int, cause: str,
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("MARK_OF_THIS_TEST", mark := f"mark-{os.urandom(8).hex()}")
    with pytest.raises(WorkerError) as caught:
        launch(function, *filter(None, [how]), nproc=2, quiet=True)
    error = caught.value
    assert re.search(words, str(error).partition("\n")[0])
    assert (error.status, error.rank) == (status, 1 if how else error.rank)
    assert repr(error.__cause__).startswith(cause)
    if how and cause != "None":
        assert str(error).partition("\n\n")[2].startswith("Traceback (most recent")
        assert "FAILURES[how]()" in error.traceback
        assert "worker.py" not in error.traceback
    assert capfd.readouterr() == ("", "")
    if sys.version_info >= (3, 11):
        (note,) = error.__notes__
        assert "spawnlaunch: failed first: rank" in note
    assert list(tmp_path.iterdir()) == []
    assert processes_with(mark) == []


@pytest.mark.full
def test_of_several_nodes_that_of_the_rank_names_it_though_others_end_with_0_when_told() -> None:
    """And where none fails each node has the results of its own ranks."""
    flags = {"nnodes": 2, "master_addr": "127.0.0.1", "master_port": free_port(), "quiet": True}
    errors: list[WorkerError | None] = [None, None]
    results: list[list[Any]] = [[], []]

    def one(node: int) -> None:
        results[node] = launch(os.getenv, "RANK", nproc=2, node_rank=node, **flags)
        with pytest.raises(LaunchError) as caught:
            launch(functions.fails, "os._exit", nproc=2, node_rank=node, **flags)
        errors[node] = caught.value  # type: ignore[assignment]

    nodes = [threading.Thread(target=one, args=(node,)) for node in (0, 1)]
    for each in nodes:
        each.start()
    for each in nodes:
        each.join()
    assert results == [["0", "1"], ["2", "3"]]
    assert errors[0] is not None
    assert errors[0].rank == 3
    assert isinstance(errors[1], WorkerError)
    assert errors[1].rank == 3
    assert "status 0 before its function returned" in str(errors[1])


def test_what_workers_say_is_shown_by_a_quiet_launch_too(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        launch(functools.partial(print_and_exit, 3), nproc=2, quiet=True, ranks_filter=[0])
    assert capfd.readouterr() == ("[0] before the end\n", "")


def print_and_exit(status: int) -> None:
    print("before the end", flush=True)
    if os.environ["RANK"] == "0":
        sys.exit(status)


# What is raised to end or to skip


class Halt(BaseException):
    """A user's own, which no `except Exception` is to catch."""


@pytest.mark.parametrize(
    ("error", "status"),
    mostly_full(
        [
            (unittest.SkipTest("no GPU"), 1),
            (KeyboardInterrupt(), 1),
            (SystemExit(75), 75),
            (SystemExit("bad words"), 1),
            (GeneratorExit(), 1),
            (Halt("here"), 1),
        ],
        at_once=2,
    ),
)
def test_what_is_no_error_arrives_as_itself(error: BaseException, status: int) -> None:
    with pytest.raises(type(error)) as caught:
        launch(functions.throws, error, quiet=True)
    assert caught.value.args == error.args
    cause = caught.value.__cause__
    assert isinstance(cause, WorkerError)
    assert (cause.rank, cause.status) == (0, status)
    assert "in throws" in cause.traceback
