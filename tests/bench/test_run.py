"""Real benches of real ranks: on this machine, under Slurm, and of a command of the user."""

import contextlib
import itertools
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]  # documented there

from spawnlaunch.bench import rank_group, results, stats
from spawnlaunch.bench.rank_group import RankGoneError, RankGroup
from spawnlaunch.bench.rounds import order
from spawnlaunch.bench.sample import FailedError
from tests.cluster.slurm import Slurm
from tests.support.launching import LAUNCHER, REPORTER, WORKERS, clean_environ, run, start
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.processes import nothing_left_behind, until

BENCH = (sys.executable, "-m", "spawnlaunch.bench")
TWO_RANKS = (*BENCH, "--nproc", "2")
# Arms that differ where there is one rank, which is started in half the time.
ONE_RANK = (*BENCH, "--nproc", "1", "--arms", "auto", "--arm", "one=--threads 1")
SHORT = ("--seconds", "0.05", "--warm-up", "0")

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs: on one, no binding differs"
)


def bench(file: Path, *words: object, **environ: str) -> tuple[results.Result, str]:
    """The result that a bench of two ranks wrote, and what it printed."""
    done = run(*TWO_RANKS, "--json", file, *words, environ=clean_environ(**environ))
    assert done.returncode == 0, done.stderr
    return results.read(str(file)), done.stdout


def placed(rank: str, size: str, port: str) -> dict[str, str]:
    """The variables of a rank of one node."""
    its = clean_environ(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=size)
    return {**its, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def one(found: results.Result, arm: str, against: str) -> stats.Comparison:
    rows = results.headline(results.rows(found))
    (row,) = (row for row in rows if (row.arm, row.against) == (arm, against))
    return row.comparison


def test_two_ranks_are_bound_as_the_arms_say(tmp_path: Path):
    arms = ("--arms", "auto,packed,exclusive", "--workloads", "compute", "--rounds", "2")
    found, _ = bench(tmp_path / "found.json", *arms, *SHORT)
    assert found.left_out["exclusive"].endswith("is bound as under auto")
    assert [rank.cpus for rank in found.arms[1].ranks] == ["0", "0"]


@pytest.mark.nightly  # it compares times, which a busy machine changes
def test_two_ranks_packed_on_one_core_are_half_as_fast(tmp_path: Path):
    arms = ("--arms", "auto,packed", "--workloads", "compute", "--rounds", "12")
    found, said = bench(tmp_path / "found.json", *arms)
    compared = one(found, "packed", "auto")
    assert compared.verdict == stats.WORSE
    assert 0.4 < compared.ratio < 0.65
    assert compared.high < 1
    assert "leave the flags" in said


@pytest.mark.full  # other tests run most of them
def test_all_workloads_run_and_what_cannot_is_named(tmp_path: Path):
    file, picture = tmp_path / "found.json", tmp_path / "found.png"
    words = ("--arms", "auto", "--rounds", "1", "--seed", "5", *SHORT, "--plot", picture)
    found, said = bench(file, *words)
    assert picture.read_bytes().startswith(b"\x89PNG")
    ran = [measured.workload.name for measured in found.measured]
    expected = ["compute", "triad", "allreduce", "loader", "train", "jitter"]
    assert [name for name in ran if name != "copies"] == expected
    assert ("copies" in ran) != ("copies left out:" in said)
    for measured in found.measured:
        for samples in measured.series.values():
            ((first, second),) = samples["auto"]
            assert first is not None
            assert second is not None
            assert min(first, second) > 0
    assert found.about["seed"] == 5
    assert "--seed 5" in found.about["command"]
    assert set(found.about["versions"]) == {"spawnlaunch", "python", "torch", "numpy"}


@pytest.mark.full
def test_workloads_that_are_not_measured_by_default_run_where_they_are_named(tmp_path: Path):
    words = ("--arms", "auto", "--rounds", "1", *SHORT)
    names = ("--workloads", "allgather,reducescatter,loader-pinned")
    found, said = bench(tmp_path / "found.json", *words, *names)
    ran = {each.workload.name: each.series for each in found.measured}
    assert list(ran)[:2] == ["allgather", "reducescatter"]
    assert ("loader-pinned" in ran) != ("loader-pinned left out: PyTorch sees no CUDA" in said)
    for name in ("allgather", "reducescatter"):
        assert list(ran[name])[:4] == ["4 B", "4 KiB", "256 KiB", "4 MiB"]


@pytest.mark.full
def test_a_command_is_measured_by_a_number_that_it_prints(tmp_path: Path):
    words = ("--arms", "unpinned,auto", "--rounds", "1", "--warm-up", "0", "--metric", "speed")
    command = ("--", sys.executable, WORKERS / "metric.py")
    found, _ = bench(tmp_path / "found.json", *words, *command)
    cpus = len(os.sched_getaffinity(0))
    assert found.measured[0].series[""] == {
        "unpinned": [[10.0 * cpus, None]],
        "auto": [[10.0 * len(range(0, cpus, 2)), None]],
    }


@pytest.mark.full
def test_a_command_is_measured_by_its_wall_time(tmp_path: Path):
    file, began = tmp_path / "found.json", time.monotonic()
    words = ("--rounds", "2", "--warm-up", "0", "--json", file, "--", "sleep", "0.2")
    assert run(*ONE_RANK, *words).returncode == 0
    found = results.read(str(file))
    samples = [ranks for arm in found.measured[0].series[""].values() for ranks in arm]
    assert all(seconds >= 0.2 for ranks in samples for seconds in ranks)
    assert sum(map(max, samples)) < time.monotonic() - began


@pytest.mark.full
def test_a_command_that_fails_on_one_rank_ends_the_bench_and_leaves_nothing(tmp_path: Path):
    script = 'echo broken here >&2; [ "$RANK" = 1 ] && exit 3; exec sleep 600'
    words = ("--json", tmp_path / "no", "--", "sh", "-c", script)
    with nothing_left_behind("BENCH_TEST=fails"):
        done = run(*TWO_RANKS, *words, environ=clean_environ(BENCH_TEST="fails"))
    assert done.returncode == 1
    assert "rank 1: sh exited with status 3:\nbroken here" in done.stderr


@pytest.mark.full
def test_what_was_measured_before_a_workload_failed_is_kept(tmp_path: Path):
    file = tmp_path / "found.jsonl"
    words = ("--workloads", "compute,loader", "--rounds", "2", "--progress")
    command = [*map(str, (*ONE_RANK, *words, "--json", file, *SHORT))]
    with start(*command, stderr=subprocess.PIPE, text=False, stdout=None) as process:
        assert process.stderr is not None
        said = b""
        while b"loader" not in said:
            said += process.stderr.read1()
        while process.poll() is None:  # until a sample of the second workload was hit
            with contextlib.suppress(psutil.NoSuchProcess, ValueError):
                (guard,) = psutil.Process(process.pid).children()
                (rank,) = guard.children()
                _store, *samples = sorted(rank.children(), key=psutil.Process.create_time)
                for sample in samples:
                    sample.kill()
            time.sleep(0.005)
        said += process.stderr.read()
    assert process.returncode == 1
    assert b"error: loader on rank " in said
    assert b"the process of the sample died of SIGKILL" in said
    compute, loader = results.read(str(file)).measured
    assert (compute.rounds, loader.there) == (2, [])


@pytest.mark.full
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
    assert "command was not measured" in done.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no/found.json", "make it first"),
        ("directory", "is a directory"),
        ("/dev/null", "a device; type the name"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    name: str, said: str, tmp_path: Path
):
    (tmp_path / "directory").mkdir()
    done = run(*ONE_RANK, "--json", tmp_path / name)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr


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
        ("--help", ">&-", "stdout is closed; type --json FILE >/dev/null"),
        pytest.param(
            *("--nproc 1 --rounds 1", ">/dev/full", "cannot write to stdout: No space left"),
            marks=pytest.mark.full,
        ),
    ],
)
def test_where_it_cannot_print_it_says_so_once_and_fails(words: str, where: str, said: str):
    done = run("sh", "-c", f"{shlex.join(BENCH)} {words} {where}")
    assert done.returncode == os.EX_IOERR
    (line,) = (line for line in done.stderr.splitlines() if "spawnlaunch: " not in line)
    assert line.startswith(f"spawnlaunch.bench: error: {said}")


@pytest.mark.full
def test_modules_of_the_user_are_not_taken_for_those_of_python(tmp_path: Path):
    for name in ("train", "signal", "json", "random", "argparse"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user')\n")
    environ = placed("0", "1", str(free_port()))
    words = ("--arms", "auto", "--rounds", "1", "--workloads", "train", "--omp-threads", "1")
    done = run(*BENCH, *words, *SHORT, environ=environ, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "train (steps/s" in done.stdout


@pytest.mark.full
def test_variables_of_ranks_that_cannot_meet_are_replaced_which_is_said():
    left = clean_environ(RANK="1", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    words = ("--arms", "unpinned", "--rounds", "1", "--workloads", "jitter", *SHORT)
    done = run(*BENCH, *words, environ=left)
    assert done.returncode == 0, done.stderr
    assert "RANK=1 LOCAL_WORLD_SIZE=1" in done.stderr


@pytest.mark.full
def test_ranks_that_the_launcher_pinned_are_refused_with_the_command_to_type():
    done = run(*LAUNCHER, "--nproc", "2", "-m", "spawnlaunch.bench", "--rounds", "1")
    assert done.returncode == 2
    assert "--bind none -m spawnlaunch.bench" in done.stderr


@pytest.mark.full
def test_it_runs_under_torchrun():
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    words = ("--arms", "unpinned,auto", "--workloads", "jitter", "--rounds", "1", *SHORT)
    done = run(*torchrun, "-m", "spawnlaunch.bench", *words)
    assert done.returncode == 0, done.stderr
    assert "auto         0 | 1" in done.stdout


@pytest.mark.full  # the batch script is another test of it under Slurm
def test_under_slurm_the_ranks_of_two_nodes_agree_and_one_file_has_them_all(
    slurm: Slurm, tmp_path: Path
):
    file = tmp_path / "found.json"
    words = ("--arms", "unpinned,packed,auto", "--workloads", "compute", "--omp-threads", "1")
    step = ("srun", "-N2", "-n4", "--overcommit", *BENCH, "--json", file)
    done = slurm.run([*step, "--rounds", "1", *words, *SHORT])
    assert done.returncode == 0, done.stderr
    found = results.read(str(file))
    assert [node["host"] for node in found.nodes] == ["node0", "node1"]
    assert [set(node["pictures"]) for node in found.nodes] == [{"unpinned", "packed", "auto"}] * 2
    for arm in found.arms:
        assert [rank.rank for rank in arm.ranks] == [0, 1, 2, 3]
        assert [rank.host for rank in arm.ranks] == ["node0", "node0", "node1", "node1"]
    for measured in found.measured:
        for samples in measured.series.values():
            assert [len(ranks) for rounds in samples.values() for ranks in rounds] == [4] * 3


def test_who_waits_for_a_rank_that_has_died_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rank_group, "LOOK_AGAIN", timedelta(seconds=0.2))
    store = HashStore()
    first, second = (RankGroup(store, rank, 2) for rank in range(2))
    threading.Timer(0.5, second.report_death).start()
    for first.until in (time.monotonic(), float("inf")):
        with pytest.raises(RankGoneError):
            first.gather("waits for the second")


@pytest.mark.full
def test_no_rank_has_threads_when_it_is_forked_for_a_sample(tmp_path: Path):
    """What a thread has locked then stays locked in the sample, for ever."""
    asks = "import os; n = len(os.listdir(f'/proc/{os.getppid()}/task')); "
    asks += """print(f'{{"threads": {n}}}')"""
    words = ("--arms", "unpinned", "--rounds", "3", "--warm-up", "0", "--metric", "threads")
    found, _ = bench(tmp_path / "found.json", *words, "--", sys.executable, "-c", asks)
    assert found.measured[0].series[""] == {"unpinned": [[1.0, 1.0]] * 3}


@pytest.mark.full
def test_a_port_that_another_has_is_named():
    with socket.create_server(("", 0)) as other:
        port = str(other.getsockname()[1])
        done = run(*BENCH, "--rounds", "1", environ=placed("0", "1", port))
    assert done.returncode == 1
    assert "cannot listen" in done.stderr
    assert f"port: {port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_ranks_that_have_not_come_are_named(monkeypatch: pytest.MonkeyPatch):
    for name in ("MOST_TO_JOIN", "LOOK_AGAIN"):
        monkeypatch.setattr(rank_group, name, timedelta(seconds=0.2))
    with pytest.raises(FailedError, match=r"ranks 0, 2, 3 have not come"):
        rank_group.joined(HashStore(), 1, 4)


def test_variables_that_take_the_cpus_away_are_refused_with_what_to_type():
    done = run(*TWO_RANKS, "--rounds", "1", environ=clean_environ(OMP_PROC_BIND="close"))
    assert done.returncode == 2
    assert "OMP_PROC_BIND=close binds" in done.stderr
    assert "set OMP_PROC_BIND=false" in done.stderr


@pytest.mark.full
def test_where_one_arm_is_left_there_is_nothing_to_advise():
    words = ("--rounds", "1", "--workloads", "compute", *SHORT)
    done = run("taskset", "-c", "0", *TWO_RANKS, *words)
    assert done.returncode == 0, done.stderr
    assert "packed       left out: there is one core" in done.stdout
    assert "nothing to advise" in done.stdout


@pytest.mark.full
def test_without_a_number_there_is_a_rank_for_each_cpu(tmp_path: Path):
    file = tmp_path / "found.json"
    words = ("--arms", "auto", "--rounds", "1", "--workloads", "compute", *SHORT)
    done = run(*BENCH, *words, "--json", file)
    assert done.returncode == 0, done.stderr
    assert len(results.read(str(file)).arms[0].ranks) == len(os.sched_getaffinity(0))


def test_the_order_of_the_arms_is_a_function_of_the_seed():
    names = ("unpinned", "far", "packed", "auto")
    orders = [tuple(order(names, 0, "triad", number)) for number in range(20)]
    assert orders == [tuple(order(names, 0, "triad", number)) for number in range(20)]
    assert len(set(orders)) > 5
    assert orders != [tuple(order(names, 1, "triad", number)) for number in range(20)]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_each_arm_follows_each_equally_often_itself_too(count: int):
    names, rounds = tuple("abcdefg"[:count]), 2000
    every = [order(names, 0, "triad", number) for number in range(rounds)]
    assert all(sorted(each) == list(names) for each in every)
    taken = [name for each in every for name in each]
    pairs = Counter(itertools.pairwise(taken))
    share = rounds / count  # of each pair
    assert len(pairs) == count**2
    assert all(abs(times - share) < 6 * share**0.5 + 1 for times in pairs.values()), pairs


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_of_two_equal_arms_a_difference_is_claimed_in_at_most_one_of_20_real_runs(tmp_path: Path):
    words = ("--arms", "unpinned,control", "--workloads", "compute", "--seconds", "0.1")
    verdicts = []
    for seed in range(20):
        found, _ = bench(tmp_path / f"{seed}", *words, "--seed", seed, "--budget", "30s")
        verdicts.append(one(found, "control", "unpinned").verdict)
    assert sum(verdict in (stats.BETTER, stats.WORSE) for verdict in verdicts) <= 1, verdicts


METRIC = ("--metric", "speed", "--", sys.executable, WORKERS / "metric.py")


@pytest.mark.full
def test_rounds_go_on_until_all_is_decided(tmp_path: Path):
    arms = ("--arms", "auto,unpinned", "--warm-up", "0", "--budget", "1h")
    found, said = bench(tmp_path / "found.json", *arms, *METRIC)
    assert found.measured[0].rounds == stats.LOOKS[0]
    assert one(found, "unpinned", "auto").verdict == stats.BETTER
    assert "up to 1 h 0 min" in said
    last = json.loads((tmp_path / "found.json").read_text().splitlines()[-1])["found"]
    assert last["advice"]["flags"] == "--bind none"


@pytest.mark.full
def test_the_budget_ends_what_is_not_decided(tmp_path: Path):
    words = ("--workloads", "jitter", "--warm-up", "0", "--budget", "40s", "--seconds", "0.5")
    done = run(*ONE_RANK, *words, "--json", tmp_path / "found.json")
    (measured,) = results.read(str(tmp_path / "found.json")).measured
    assert 1 <= measured.rounds < stats.LOOKS[-1]
    assert measured.error == pytest.approx(stats.error_of_look(measured.rounds, True))
    assert "are needed to tell; type --rounds" in done.stdout or measured.rounds >= 6


@pytest.mark.full
def test_a_script_types_the_flags_that_are_picked():
    arms = ("--arms", "auto,unpinned", "--warm-up", "0", "--rounds", "7")
    done = run(*TWO_RANKS, "--pick", *arms, *METRIC)
    assert (done.stdout, done.returncode) == ("--bind none\n", 0), done.stderr
    assert "unpinned" in done.stderr
    done = run(*ONE_RANK, "--pick", "--warm-up", "0", "--rounds", "2", "--", "true")
    assert (done.stdout, done.returncode) == ("", 3), done.stderr


@pytest.mark.full
def test_a_batch_script_launches_with_what_was_picked(slurm: Slurm, tmp_path: Path):
    arms = ("--pick", "--arms", "auto,unpinned", "--warm-up", "0", "--rounds", "7")
    picked = shlex.join(map(str, ("srun", "-n2", *BENCH, *arms, *METRIC)))
    launch = f"srun -n2 {sys.executable} -m spawnlaunch --explain $flags {REPORTER}"
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nflags=$({picked}) || exit\necho picked $flags\n{launch}\n")
    job = slurm.sbatch(
        script, "-N1", "-n2", "--overcommit", env=clean_environ(), timeout=PATIENCE_S
    )
    assert job.state == "COMPLETED", job.output
    assert "picked --bind none\n" in job.output
    assert job.output.count("not pinned") == 2  # each of the ranks that were launched with it


@pytest.mark.full  # minutes: the worse arm is several times as slow
def test_what_is_picked_for_training_is_the_arm_that_is_truly_better(slurm: Slurm, tmp_path: Path):
    """Slurm's four nodes are this machine, and each thinks that it is alone there.

    So by default the ranks have four times as many threads as there are CPUs, which wait for each
    other in every step. With one thread each it is several times as fast, however busy it is.
    """
    step, flags = ("srun", "-N4", "-n4"), "--bind none --threads 1"
    arms = ("--arms", "auto", "--arm", f"alone={flags}", "--workloads", "train", *SHORT)
    picked = shlex.join(map(str, (*step, *BENCH, "--pick", "train", *arms)))
    launch = shlex.join(map(str, (*step, *LAUNCHER)))
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n"  # undecided, it is asked again with more rounds
        f"for rounds in 8 16 32; do flags=$({picked} --rounds $rounds) && break; done || exit\n"
        f"echo picked $flags\n{launch} $flags {REPORTER}\n"
    )
    reports = tmp_path / "reports"
    reports.mkdir()
    environ = clean_environ(REPORT_DIR=str(reports), SLURM_KILL_BAD_EXIT="1")
    job = slurm.sbatch(script, "-N4", "-n4", env=environ, timeout=PATIENCE_S)
    assert job.state == "COMPLETED", job.output
    assert f"picked {flags}" in job.output.splitlines(), job.output
    said = [json.loads(file.read_text()) for file in reports.iterdir()]
    assert [each["environ"]["OMP_NUM_THREADS"] for each in said] == ["1"] * 4
    assert {each["hostname"] for each in said} == {"node0", "node1", "node2", "node3"}


SLOWER = Path(__file__).parents[1] / "workers" / "slower.py"  # by its CPUs and by the round


@pytest.mark.full
def test_a_bench_that_was_killed_goes_on_and_its_table_is_that_of_one_that_was_not(tmp_path: Path):
    words = ("--rounds", "9", "--warm-up", "0", "--metric", "speed")
    command = ("--", sys.executable, SLOWER)

    def counting(name: str) -> tuple[object, ...]:
        file = tmp_path / f"{name}.jsonl"
        return (*ONE_RANK, *words, "--json", file, *command, file)

    whole = run(*counting("whole"))
    assert whole.returncode == 0, whole.stderr
    file = tmp_path / "part.jsonl"
    with start(*counting("part"), start_new_session=True) as process:
        until(lambda: counted(file) >= 7, "seven samples")
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
    before = counted(file)
    with file.open("a") as torn:
        torn.write('{"sample": {"workload": "comm')
    resumed = run(*BENCH, "--resume", file)
    assert resumed.returncode == 0, resumed.stderr
    assert 7 <= before < 18
    assert counted(file) == 18
    shown = [
        run(*BENCH, "--show", tmp_path / f"{name}.jsonl").stdout.splitlines()
        for name in ("whole", "part")
    ]
    tables = [[line for line in lines if is_of_the_table(line)] for lines in shown]
    assert tables[0] == tables[1]
    assert any(line.startswith("gone on with on ") for line in shown[1])


@pytest.mark.full
def test_a_bench_that_ended_goes_on_with_the_rounds_that_its_page_advises(tmp_path: Path):
    file = tmp_path / "found.jsonl"
    words = ("--rounds", "3", "--warm-up", "0", "--json", file, "--", "true")
    page = run(*ONE_RANK, *words).stdout
    (advised,) = re.findall(r"type (--rounds \d+),", page)
    again = run(*BENCH, "--resume", file, *advised.split())
    assert again.returncode == 0, again.stderr
    (measured,) = results.read(str(file)).measured
    assert f"--rounds {measured.rounds}" == advised
    assert "are needed" not in again.stdout
    for less in (("--rounds", "3"), ("--budget", "1s")):
        refused = run(*BENCH, "--resume", file, *less)
        assert (refused.returncode, "type more, as --rounds " in refused.stderr) == (2, True)


def counted(file: Path) -> int:
    """How many samples a file has, without those that were taken again."""
    lines = file.read_text().splitlines() if file.exists() else []
    return sum('"sample"' in line and '"counts"' not in line for line in lines)


def is_of_the_table(line: str) -> bool:
    return line.startswith("  ") and not line.startswith(("  why", "  /")) and "sample" not in line


@pytest.mark.full
def test_an_interrupted_bench_ends_with_what_it_knows(tmp_path: Path):
    file = tmp_path / "found.jsonl"
    words = ("--budget", "1h", "--seconds", "0.05", "--json", file)
    with start(*ONE_RANK, *words, "--workloads", "jitter", stderr=subprocess.PIPE) as process:
        until(lambda: counted(file) >= 4, "two rounds")
        process.send_signal(signal.SIGTERM)
        said, error = process.communicate(timeout=PATIENCE_S)
    assert ", and then it was interrupted" in said
    assert f"type python -m spawnlaunch.bench --resume {file}" in error
    assert "advice for jitter:" in said


@pytest.mark.full
def test_a_bench_of_another_machine_or_of_something_else_is_not_gone_on_with(tmp_path: Path):
    file = tmp_path / "found.jsonl"
    words = ("--arms", "auto", "--workloads", "jitter", "--rounds", "1", *SHORT)
    bench(file, *words)
    text = file.read_text()
    for flags, what in (
        (("--workloads", "jitter,triad"), "workloads not as"),
        (("--seconds", "0.1", "--seed", "2"), "seconds, seed not as"),
        (("--json", "other.jsonl"), "leave --json out"),
        ((), "bindings not as"),
    ):
        file.write_text(text if flags else re.sub('"cpus": "[^"]*"', '"cpus": "7"', text))
        done = run(*BENCH, "--resume", file, "--rounds", "2", *flags)
        assert (done.returncode, what in done.stderr) == (2, True), done.stderr


@pytest.mark.full
def test_numbers_of_workers_are_compared_by_speed_and_efficiency(tmp_path: Path):
    file = tmp_path / "found.jsonl"
    words = ("--workloads", "compute,allreduce", "--rounds", "2", "--json", file, *SHORT)
    done = run(*BENCH, "--nproc", "1,2", *words)
    assert done.returncode == 0, done.stderr
    # What disturbs the one worker more than both may well seem to be too good.
    told = (r": [\d.]+ times the speed of 1, efficiency \d+%", r" seem to have \d+% of the effici")
    assert any(re.search(f"2 workers{words}", done.stdout) for words in told), done.stdout
    assert "allreduce left out" in done.stdout
    found = results.read(str(file))
    assert [len(arm.ranks) for arm in found.arms] == [1, 2]


@pytest.mark.full
def test_the_samples_of_a_bench_without_a_file_are_not_left(tmp_path: Path):
    words = ("--rounds", "1", "--warm-up", "0", "--", "true")
    done = run(*ONE_RANK, *words, environ=clean_environ(TMPDIR=str(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.full
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
    assert "launchers were compared" in done.stdout
    (measured,) = results.read(str(file)).measured
    assert measured.series[""] == {key: [[231.0]] for key in ("torchrun", "spawnlaunch")}


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--launcher torchrun --nproc 2 -- true", "here are 2 ranks; type python -m"),
        ("--nproc 1,4", "4 workers, and 2 have been started"),
    ],
)
def test_what_the_ranks_that_were_started_cannot_do_is_refused(words: str, said: str):
    started = (*LAUNCHER, "--nproc", "2", "--bind", "none", "-m", "spawnlaunch.bench")
    done = run(*started, *words.split())
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("rank", ["0", "1"])
def test_who_waits_for_a_rank_that_does_not_come_waits_no_longer_than_its_budget(rank: str):
    done = run(*BENCH, "--budget", "15s", environ=placed(rank, "2", str(free_port())))
    assert done.returncode == 1
    said = ["spawnlaunch.bench: error: the budget of 15 s"] if rank == "0" else []
    assert [line[: len(said[0])] for line in done.stderr.splitlines()] == said
