"""A worker that is interrupted, or whose peer is gone, ends and says so."""

import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support import launching
from tests.train.ranks import ENTRY, ROOT, SMALL, environment, run, start, text_of, until
from tests.train.ranks import finish as finish_ranks

pytestmark = pytest.mark.full
TINY = (*SMALL, "--context", "16", "--batch-size", "2", "--out", "here")


@pytest.mark.parametrize(
    ("size", "status", "said"), [(2, 130, "interrupted"), (1, 75, "saves and ends; SIGINT once")]
)
def test_an_interrupt_ends_all_ranks_or_lets_the_only_one_save(
    tmp_path: Path, size: int, status: int, said: str
) -> None:
    ranks = start(size, *TINY, "--steps", "1000000", "--log-every", "1", cwd=tmp_path)
    until(ranks[0], "step")
    for rank in ranks:
        rank.send_signal(signal.SIGINT)
    ended = finish_ranks(ranks)
    assert [rank.status for rank in ended] == [status] * size
    assert ended[0].err.startswith(f"train: {said}")
    assert "".join(rank.err for rank in ended).count("\n") == 1
    assert ("preempted by SIGINT after step" in ended[0].out) == (size == 1)


def test_an_interrupt_ends_a_rank_that_waits_for_a_lost_peer(tmp_path: Path) -> None:
    alone, other = start(2, *TINY, cwd=tmp_path)
    other.kill()
    time.sleep(4)
    assert alone.poll() is None
    alone.send_signal(signal.SIGINT)
    (ended, _) = finish_ranks([alone, other])
    assert (ended.status, ended.err) == (130, "train: interrupted\n")


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, runpy, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"runpy.run_path({str(ENTRY)!r}, run_name='elsewhere')\n"
        "from spawnlaunch.train.ending import leave_on_interrupt\n"
        "leave_on_interrupt()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print('still here')\n"
    )
    (ended,) = run(0, cwd=tmp_path, program=program)
    assert (ended.status, ended.out) == (0, "still here\n")


LATE = 'test "$RANK" -ne 0 || sleep 1; exec "$0" -m spawnlaunch.train "$@"'


def test_what_all_ranks_refuse_is_said_though_rank_0_begins_last(tmp_path: Path) -> None:
    """The launcher stops all others when the first rank has left."""
    words = ("-m", "spawnlaunch", "--nproc", "3", "--quiet", "--no-python", "sh", "-c", LATE)
    ended = launching.run(
        *(sys.executable, *words, sys.executable, "--best", "accuracy:up"),
        cwd=tmp_path,
        environ=environment(0, 0, 0, PYTHONPATH=str(ROOT)),
    )
    assert ended.returncode == 2
    said = "train: error: argument --best: 'accuracy:up' cannot be; use loss, or a measure"
    assert ended.stderr.count(f"[0] {said}") == 1, ended.stderr
    assert "failed first: rank 0 on " in ended.stderr


QUITS = text_of("quits")
OF_QUITS = ("--task", "quits.py:Quits", "--device", "cpu", "--steps", "3", "--out", "here")


def test_the_wrapper_is_gone_before_its_process_group(tmp_path: Path) -> None:
    """Its destructor would wait, with the GIL, for threads of gloo that want the GIL."""
    (tmp_path / "quits.py").write_text(QUITS)
    ranks = run(3, *OF_QUITS, "--how", "stays", "--loader-workers", "2", cwd=tmp_path)
    assert [rank.status for rank in ranks] == [0, 0, 0], ranks
    assert "0 wrappers, a group: False\n" in ranks[0].out


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("text", 1, "it is enough\n"),
        ("number", 3, ""),
        ("error", 1, "EnoughError: it is enough\n"),
    ],
)
def test_a_task_that_leaves_by_itself_takes_no_interpreter_apart(
    tmp_path: Path, how: str, status: int, said: str
) -> None:
    (tmp_path / "quits.py").write_text(QUITS)
    ranks = run(2, *OF_QUITS, "--how", how, cwd=tmp_path)
    assert [rank.status for rank in ranks] == [status, status], ranks
    assert all(rank.err.endswith(said) for rank in ranks)
