"""Real benches of real ranks: on this machine, under Slurm, and of a command of the user."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from spawnlaunch.bench import results, stats
from tests.bench.real import (
    BENCH,
    ONE_RANK,
    SHORT,
    TWO_RANKS,
    bench,
    compared,
    needs_two_cpus,
)
from tests.support.launching import LAUNCHER, WORKERS, clean_environ, run

PACKED = ("--arms", "auto", "--arm", "packed=--bind 0:0")
METRIC = ("--metric", "speed", "--", sys.executable, WORKERS / "metric.py")

pytestmark = [pytest.mark.full, needs_two_cpus]


@pytest.mark.nightly  # it compares times, which a busy machine changes
def test_two_ranks_packed_on_one_core_are_half_as_fast(tmp_path: Path):
    arms = (*PACKED, "--workloads", "compute", "--rounds", "12")
    found, said = bench(tmp_path / "found.json", *arms)
    its = compared(found, "packed", "auto")
    assert its.verdict == stats.WORSE
    assert 0.4 < its.ratio < 0.65
    assert its.high < 1
    assert said.startswith("keep the default: packed is ")


def test_two_ranks_are_bound_as_the_arms_say(tmp_path: Path):
    arms = (*PACKED, "--arm", "alone=--bind exclusive", "--workloads", "compute", "--rounds", "1")
    found, _ = bench(tmp_path / "found.json", *arms, *SHORT)
    assert found.omitted["alone"].endswith("is bound as under auto")
    assert [rank.cpus for rank in found.arms[1].ranks] == ["0", "0"]


def test_all_workloads_run_and_what_cannot_is_named(tmp_path: Path):
    words = ("--arms", "auto", "--rounds", "1", *SHORT)
    found, said = bench(tmp_path / "found.json", *words)
    ran = [measured.workload.name for measured in found.measured]
    expected = ["train", "compute", "triad", "allreduce", "loader", "jitter"]
    assert [name for name in ran if name != "copies"] == expected
    assert ("copies" in ran) != ("copies, launches, latency left out: PyTorch sees no" in said)
    for measured in found.measured:
        for samples in measured.series.values():
            ((first, second),) = samples["auto"]
            assert min(first, second) > 0
    assert "--rounds 1" in found.about["command"]
    assert set(found.about["versions"]) == {"spawnlaunch", "python", "torch", "numpy"}


def test_workloads_that_are_not_measured_by_default_run_where_they_are_named(tmp_path: Path):
    names = ("--workloads", "allgather,reducescatter,loader-pinned")
    words = ("--arms", "auto", "--rounds", "1", *SHORT, *names)
    found, said = bench(tmp_path / "found.json", *words)
    ran = {each.workload.name: each.series for each in found.measured}
    assert list(ran)[:2] == ["allgather", "reducescatter"]
    assert ("loader-pinned" in ran) != ("loader-pinned left out: PyTorch sees no CUDA" in said)
    for name in ("allgather", "reducescatter"):
        assert list(ran[name])[:4] == ["4 B", "4 KiB", "256 KiB", "4 MiB"]


def test_a_command_is_measured_by_a_number_that_it_prints(tmp_path: Path):
    picture = tmp_path / "found.png"
    arms = ("--arms", "auto,unpinned", "--warm-up", "0", "--rounds", "8", "--plot", picture)
    found, said = bench(tmp_path / "found.json", *arms, *METRIC)
    assert picture.read_bytes().startswith(b"\x89PNG")
    rounds, cpus = 8, len(os.sched_getaffinity(0))
    assert found.measured[0].series[""] == {
        "auto": [[10.0 * len(range(0, cpus, 2)), None]] * rounds,
        "unpinned": [[10.0 * cpus, None]] * rounds,
    }
    assert compared(found, "unpinned", "auto").verdict == stats.BETTER
    assert said.startswith("use --bind none: unpinned is 100 % faster in command")
    last = json.loads((tmp_path / "found.json").read_text().splitlines()[-1])["summary"]
    assert last["advice"]["flags"] == "--bind none"


def test_a_command_is_measured_by_its_wall_time(tmp_path: Path):
    file, began = tmp_path / "found.json", time.monotonic()
    words = ("--rounds", "2", "--warm-up", "0", "--json", file, "--", "sleep", "0.2")
    assert run(*ONE_RANK, *words).returncode == 0
    found = results.read(str(file))
    samples = [ranks for arm in found.measured[0].series[""].values() for ranks in arm]
    assert all(seconds >= 0.2 for ranks in samples for seconds in ranks)
    assert sum(map(max, samples)) < time.monotonic() - began


def test_no_rank_has_threads_when_it_is_forked_for_a_sample(tmp_path: Path):
    """What a thread has locked then stays locked in the sample, for ever."""
    asks = "import os; n = len(os.listdir(f'/proc/{os.getppid()}/task')); "
    asks += """print(f'{{"threads": {n}}}')"""
    words = ("--arms", "unpinned", "--rounds", "3", "--warm-up", "0", "--metric", "threads")
    found, _ = bench(tmp_path / "found.json", *words, "--", sys.executable, "-c", asks)
    assert found.measured[0].series[""] == {"unpinned": [[1.0, 1.0]] * 3}


def test_numbers_of_workers_are_compared_by_speed_and_efficiency(tmp_path: Path):
    file = tmp_path / "found.jsonl"
    words = ("--workloads", "compute,allreduce", "--rounds", "2", "--json", file, *SHORT)
    done = run(*BENCH, "--nproc", "1,2", *words)
    assert done.returncode == 0, done.stderr
    # What disturbs the one worker more than both may well seem to be too good.
    assert "2 workers: " in done.stdout or "2 workers seem to have " in done.stdout
    assert "allreduce left out" in done.stdout
    found = results.read(str(file))
    assert [len(arm.ranks) for arm in found.arms] == [1, 2]


def test_launchers_start_the_same_command_in_the_same_rounds(tmp_path: Path):
    file, script = tmp_path / "found.jsonl", tmp_path / "say.py"
    script.write_text(
        "import json, os\n"
        "names = 'RANK', 'WORLD_SIZE', 'OMP_NUM_THREADS'\n"
        "rank, size, threads = (int(os.environ[name]) for name in names)\n"
        "elastic = 'TORCHELASTIC_RUN_ID' in os.environ\n"
        "if rank == 1:\n"
        "    print(json.dumps({'number': 100 * size + 10 * threads + elastic}))\n"
    )
    words = ("--launcher", "torchrun,spawnlaunch", "--omp-threads", "3", "--metric", "number")
    words = (*words, "--rounds", "1", "--warm-up", "0", "--json", file)
    done = run(*TWO_RANKS, *words, "--", sys.executable, script)
    assert done.returncode == 0, done.stderr
    assert "spawnlaunch  python -m spawnlaunch --nproc 2" in done.stdout
    (measured,) = results.read(str(file)).measured
    assert measured.series[""] == {key: [[231.0]] for key in ("torchrun", "spawnlaunch")}


# Ranks that somebody has started.


def test_variables_of_ranks_that_cannot_meet_are_replaced_by_a_rank_for_each_cpu(tmp_path: Path):
    left = clean_environ(RANK="1", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    file = tmp_path / "found.json"
    words = ("--arms", "unpinned", "--rounds", "1", "--workloads", "jitter", "--json", file)
    done = run(*BENCH, *words, *SHORT, environ=left)
    assert done.returncode == 0, done.stderr
    assert "RANK=1 LOCAL_WORLD_SIZE=1" in done.stderr
    assert len(results.read(str(file)).arms[0].ranks) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--rounds 1", "--bind none -m spawnlaunch.bench"),
        ("--launcher torchrun --nproc 2 -- true", "here are 2 ranks; use spawnlaunch bench"),
        ("--nproc 1,4", "4 workers, and 2 have been started"),
    ],
)
def test_what_the_ranks_that_were_started_cannot_do_is_refused(words: str, said: str):
    pinned = () if "--rounds" in words else ("--bind", "none")
    done = run(*LAUNCHER, "--nproc", "2", *pinned, "-m", "spawnlaunch.bench", *words.split())
    assert done.returncode == 2
    assert said in done.stderr
