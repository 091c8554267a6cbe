"""A run that is asked to leave saves at the next step, on all ranks, and goes on later."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train.ending import PREEMPTED
from tests.support.late import Late
from tests.train.ranks import (
    ENTRY,
    TINY_MODEL,
    Ended,
    complete,
    environment,
    finish,
    history,
    start,
    text_of,
    until,
)

schedule = Late("spawnlaunch.train.schedule")
pytestmark = pytest.mark.full
FLAGS = (
    *(*TINY_MODEL, "--context", "32", "--batch-size", "2", "--log-every", "1"),
    *("--eval-every", "6", "--save-every", "4", "--steps", "12", "--resume", "auto"),
)
LONG = (*FLAGS, "--steps", "1000000", "--out", "here")
SLOW = text_of("slow")


def interrupted(cwd: Path, where: str, *flags: str) -> list[Ended]:
    """Two ranks, one of which gets both signals, twice, where it is slow."""
    ranks = start(2, *flags, "--out", "cut", cwd=cwd, SLOW=where)
    while not (cwd / "slow-now").exists():
        assert ranks[0].poll() is None, finish(ranks)
        time.sleep(0.01)
    for number in 2 * (signal.SIGUSR1, signal.SIGTERM):
        ranks[1].send_signal(number)
    return finish(ranks)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What a run computes that nobody interrupts."""
    cwd = tmp_path_factory.mktemp("whole")
    complete(2, *FLAGS, "--out", "whole", cwd=cwd)
    return history(cwd / "whole")


@pytest.mark.parametrize(("where", "step"), [("train", 1), ("validate", 6)])
def test_in_the_first_step_and_in_a_validation_it_saves_and_resumes(
    tmp_path: Path, whole: list[dict[str, Any]], where: str, step: int
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    flags = (*FLAGS, "--task", "slow.py:Slow", "--eval-batch-size", "2")
    ranks = interrupted(tmp_path, where, *flags)
    assert [rank.status for rank in ranks] == [PREEMPTED, PREEMPTED], ranks
    last, goes_on = ranks[0].out.splitlines()[-2:]
    assert last.startswith("preempted by SIG")
    # A rank says that it wants to stop before its step, in which the signal may come.
    ends = [f" after step {each}, saved cut/step-{each:08}" for each in (step, step + 1)]
    assert last.endswith(tuple(ends[: 1 + (where == "train")]))
    assert goes_on.endswith(" -- --config cut/config.toml --resume auto")
    assert ranks[0].err == ranks[1].err == ""
    complete(2, *flags, "--out", "cut", cwd=tmp_path)
    assert [line["step"] for line in history(tmp_path / "cut")] == [line["step"] for line in whole]
    training = [line for line in whole if "loss" in line]
    assert [line for line in history(tmp_path / "cut") if "loss" in line] == training


def test_the_end_of_a_slurm_job_is_a_deadline() -> None:
    ends = {"SLURM_JOB_END_TIME": "10000"}
    for max_time, started, given_s, margin_s in (
        (None, 1000, 9000, 60),
        (None, 9900, 100, 10),
        ("1:00:00", 1000, 3600, 60),
        ("1:00:00", 20000, 0, 0),
    ):
        deadline = schedule.Deadline(max_time, ends, started)
        assert (deadline.limit_s, deadline.margin_s()) == (given_s, margin_s)
    assert deadline.reason().endswith("the Slurm job")
    assert schedule.Deadline("0s", {}, started=1000).reason() == "the time of --max-time"
    assert schedule.Deadline(None, {}, started=1000).reason() == ""


def test_the_time_kept_for_the_last_save_follows_from_the_saves_so_far() -> None:
    deadline = schedule.Deadline("1:00:00", {}, started=time.time())
    for took_s, kept_s in ((2, 60), (45, 90), (30, 90), (3000, 1800)):
        deadline.saved_in(took_s)
        assert deadline.margin_s() == kept_s
    assert deadline.reason() == ""
    with_no_end = schedule.Deadline(None, {}, started=time.time())
    with_no_end.saved_in(1e9)
    assert with_no_end.reason() == ""


def test_loader_processes_hear_no_signal(tmp_path: Path) -> None:
    env = environment(0, 0, 0)
    flags = (*LONG, "--loader-workers", "2")
    leader = subprocess.Popen(
        [sys.executable, "-u", str(ENTRY), *flags],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(leader, "step       3/")
    # As Slurm does it: to every process of the step.
    os.killpg(leader.pid, signal.SIGUSR1)
    os.killpg(leader.pid, signal.SIGTERM)
    (ended,) = finish([leader])
    assert ended.status == PREEMPTED, ended
    assert ended.err == ""
    assert "preempted by SIG" in ended.out
