"""How benches end that fail, are killed or interrupted, or cannot begin; and how they go on."""

import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.bench import rank_group, results, stats
from spawnlaunch.bench.forked_sample import FailedError
from spawnlaunch.bench.rank_group import RankEndedError, RankGroup
from tests.bench.real import BENCH, ONE_RANK, TWO_RANKS, counted, placed
from tests.support.late import Late
from tests.support.launching import clean_environ, run, start
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.processes import nothing_left_behind, until

distributed = Late("torch.distributed")


@pytest.mark.full
def test_a_command_that_fails_on_one_rank_ends_the_bench_and_leaves_nothing(tmp_path: Path):
    script = 'echo broken here >&2; [ "$RANK" = 1 ] && exit 3; exec sleep 600'
    words = ("--json", tmp_path / "no", "--", "sh", "-c", script)
    with nothing_left_behind("BENCH_TEST=fails"):
        done = run(*TWO_RANKS, *words, environ=clean_environ(BENCH_TEST="fails"))
    assert done.returncode == 1
    assert "rank 1: sh exited with status 3:\nbroken here" in done.stderr


@pytest.mark.full
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_an_arm_that_fails_is_a_line_with_its_reason_and_the_others_go_on(tmp_path: Path):
    file = tmp_path / "found.jsonl"
    many = 'grep -q "Cpus_allowed_list:.*[-,]" /proc/self/status'
    script = f"{many} || {{ echo broken here >&2; exit 3; }}"
    arms = ("--arms", "unpinned,control,auto", "--rounds", "2", "--warm-up", "0", "--json", file)
    done = run(*TWO_RANKS, *arms, "--", "sh", "-c", script)
    assert done.returncode == 1
    assert "auto failed: command on rank 0:" in done.stdout
    (measured,) = results.read(str(file)).measured
    assert (measured.there, measured.rounds) == (["unpinned", "control"], 2)
    assert done.stdout.startswith("nothing to compare: auto failed")


@pytest.mark.full
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path):
    done = run(*ONE_RANK, "--json", tmp_path / "no/found.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "make it first" in done.stderr
    for name, is_read in ((tmp_path, False), ("/dev/null", True)):
        with pytest.raises(UsageError, match="is a directory or a device; give the name"):
            results.check_writable(str(name), is_read=is_read)


@pytest.mark.full
@pytest.mark.parametrize(
    ("printed", "said"),
    [("", "a JSON line with 'loss'"), ('{"loss": -0.5}', "rank 0 measured -0.5")],
    ids=["none", "not above 0"],
)
def test_a_command_without_a_number_to_compare_is_told_so(printed: str, said: str):
    done = run(*BENCH, "--nproc", "1", "--metric", "loss", "--", "echo", printed)
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "where", "said"),
    [
        ("--help", ">/dev/full", "cannot write to stdout: No space left on device"),
        ("--help", ">&-", "stdout is closed; use --json FILE >/dev/null"),
    ],
)
def test_where_it_cannot_print_it_says_so_once_and_fails(words: str, where: str, said: str):
    done = run("sh", "-c", f"{shlex.join(BENCH)} {words} {where}")
    assert done.returncode == os.EX_IOERR
    (line,) = (line for line in done.stderr.splitlines() if "spawnlaunch: " not in line)
    assert line.startswith(f"spawnlaunch bench: error: {said}")


def test_variables_that_take_the_cpus_away_are_refused_with_what_to_type():
    done = run(*TWO_RANKS, "--rounds", "1", environ=clean_environ(OMP_PROC_BIND="close"))
    assert done.returncode == 2
    assert "OMP_PROC_BIND=close binds" in done.stderr
    assert "set OMP_PROC_BIND=false" in done.stderr


# Ranks that wait for each other.


@pytest.mark.full
def test_who_waits_for_a_rank_that_has_died_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rank_group, "RECHECK", timedelta(seconds=0.2))
    store = distributed.HashStore()
    first, second = (RankGroup(store, rank, 2) for rank in range(2))
    threading.Timer(0.5, second.report_death).start()
    for first.until in (time.monotonic(), float("inf")):
        with pytest.raises(RankEndedError):
            first.gather("waits for the second")


@pytest.mark.full
def test_ranks_that_have_not_come_are_named(monkeypatch: pytest.MonkeyPatch):
    for name in ("MOST_TO_JOIN", "RECHECK"):
        monkeypatch.setattr(rank_group, name, timedelta(seconds=0.2))
    with pytest.raises(FailedError, match=r"ranks 0, 2, 3 have not come"):
        rank_group.joined(distributed.HashStore(), 1, 4)


@pytest.mark.full
def test_a_port_that_another_has_is_named():
    with socket.create_server(("", 0)) as other:
        port = str(other.getsockname()[1])
        done = run(*BENCH, "--rounds", "1", environ=placed("0", "1", port))
    assert done.returncode == 1
    assert "cannot listen" in done.stderr
    assert f"port: {port}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_who_waits_for_a_rank_that_does_not_come_waits_no_longer_than_its_budget():
    done = run(*BENCH, "--budget", "15s", environ=placed("0", "2", str(free_port())))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("spawnlaunch bench: error: the budget of 15 s")


# The end of the budget, interruptions, and what goes on.


@pytest.mark.nightly  # a machine with other work may measure nothing in that time
def test_the_budget_ends_what_is_not_decided(tmp_path: Path):
    words = ("--workloads", "jitter", "--warm-up", "0", "--budget", "40s", "--seconds", "0.5")
    done = run(*ONE_RANK, *words, "--json", tmp_path / "found.json")
    (measured,) = results.read(str(tmp_path / "found.json")).measured
    assert 1 <= measured.rounds <= stats.MOST_ROUNDS
    assert done.returncode == 0


@pytest.mark.full
def test_an_interrupted_bench_ends_with_what_it_knows_and_says_by_what(tmp_path: Path):
    file = tmp_path / "found.jsonl"
    words = ("--budget", "1h", "--seconds", "0.05", "--json", file)
    with start(*ONE_RANK, *words, "--workloads", "jitter", stderr=subprocess.PIPE) as process:
        until(lambda: counted(file) >= 4, "two rounds")
        process.send_signal(signal.SIGTERM)
        said, error = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in error
    assert "ended early by SIGTERM: these are the samples so far" in said
    assert "ended early by" not in run(*BENCH, "--show", file).stdout
