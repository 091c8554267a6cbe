"""One machine: what workers get, how a launch ends, and what is left afterwards."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.launching import (
    HOST,
    LAUNCHER,
    WORKERS,
    clean_environ,
    launch,
    reports,
    run,
    start,
)
from tests.support.patience import PATIENCE_S
from tests.support.processes import nothing_left_behind, processes_with

CONTRACT = {
    "ROLE_NAME": "default",
    "WORLD_SIZE": "3",
    "LOCAL_WORLD_SIZE": "3",
    "ROLE_WORLD_SIZE": "3",
    "NODE_RANK": "0",
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "False",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}
SAME_FOR_ALL = ("MASTER_PORT", "TORCHELASTIC_RUN_ID")


def test_every_worker_gets_the_whole_environment_contract():
    done = launch("--nproc", 3, WORKERS / "report.py")
    workers = reports(done.stdout)
    assert done.returncode == 0
    assert [w["rank"] for w in workers] == [0, 1, 2]
    for rank, worker in enumerate(workers):
        environ = worker["environ"]
        assert {name: environ.get(name) for name in CONTRACT} == CONTRACT
        for name in ("RANK", "LOCAL_RANK", "ROLE_RANK"):
            assert environ[name] == str(rank)
    for name in SAME_FOR_ALL:
        assert len({w["environ"][name] for w in workers}) == 1
    assert len({w["environ"]["TORCHELASTIC_ERROR_FILE"] for w in workers}) == 3


def test_variables_of_the_user_win_but_stale_rank_variables_do_not():
    stale = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    own = {"OMP_NUM_THREADS": "5", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "MY_OWN": "kept"}
    done = launch("--nproc", 2, WORKERS / "report.py", environ=clean_environ(**stale, **own))
    for worker in reports(done.stdout):
        assert worker["environ"]["WORLD_SIZE"] == "2"
        assert worker["environ"]["TORCHELASTIC_USE_AGENT_STORE"] == "False"
        assert own.items() <= worker["environ"].items()
    assert len(reports(done.stdout)) == 2


def test_arguments_reach_the_script_verbatim():
    words = ["--nproc", "9", "-m", "--", "--help", "a b", "", "--lr=1e-3", "-x", "ünï", "*"]
    done = launch("--nproc", 1, WORKERS / "report.py", *words)
    (worker,) = reports(done.stdout)
    assert worker["argv"] == [str(WORKERS / "report.py"), *words]


def test_workers_are_unbuffered_python_at_once_below_the_launcher():
    done = launch("--nproc", 2, WORKERS / "report.py")
    workers = reports(done.stdout)
    assert all(worker["write_through"] for worker in workers)
    assert len({worker["ppid"] for worker in workers}) == 1


def test_a_module_runs_as_python_runs_it():
    done = launch("--nproc", 2, "-m", "tests.workers.report", "--flag")
    assert [w["argv"][1:] for w in reports(done.stdout)] == [["--flag"]] * 2


def test_any_program_runs_with_no_python_in_front():
    done = launch("--nproc", 2, "--no-python", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]


def test_shares_of_the_allowed_cpus_are_disjoint_and_cover_them():
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("needs two CPUs")
    workers = reports(launch("--nproc", 2, WORKERS / "report.py").stdout)
    shares = [set(worker["cpus"]) for worker in workers]
    assert shares[0] | shares[1] == allowed
    assert not shares[0] & shares[1]


def test_a_mask_that_somebody_set_is_not_left():
    cpu = min(os.sched_getaffinity(0))
    done = run("taskset", "-c", cpu, *LAUNCHER, "--nproc", "2", WORKERS / "report.py", check=True)
    assert [worker["cpus"] for worker in reports(done.stdout)] == [[cpu], [cpu]]


@pytest.mark.parametrize(
    ("how", "status"),
    [
        (["raise"], 1),
        (["exit", "7"], 7),
        (["exit", "255"], 255),
        (["signal", signal.SIGKILL], 137),
        (["signal", signal.SIGSEGV], 139),
    ],
)
def test_the_first_failure_is_the_exit_status_and_nothing_stays(how, status):
    mark = f"TEST_MARK={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    with nothing_left_behind(mark):
        done = launch(
            "--nproc", 3, WORKERS / "fail.py", 1, *map(int_or_word, how),
            environ=clean_environ(**{name: value}),
        )  # fmt: skip
    assert done.returncode == status
    assert f"rank 1 on {HOST} (pid" in done.stderr
    if how == ["raise"]:
        assert "RuntimeError: the worker's own message" in done.stderr


def int_or_word(word: object) -> object:
    return int(word) if isinstance(word, signal.Signals) else word


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("nproc", [1, 2])
def test_a_signal_to_the_launcher_ends_the_workers(signum, nproc):
    mark = f"TEST_MARK={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    with nothing_left_behind(mark):
        launcher = start(
            *LAUNCHER,
            "--nproc",
            nproc,
            WORKERS / "sleep.py",
            environ=clean_environ(**{name: value}),
            stderr=subprocess.PIPE,
        )
        for _ in range(nproc):
            assert launcher.stdout.readline().startswith("ready")
        launcher.send_signal(signum)
        _, stderr = launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 128 + signum
    assert "Traceback" not in stderr


def test_no_process_group_and_no_directory_of_a_launch_remains(tmp_path: Path):
    mark = f"TMPDIR={tmp_path}"
    done = launch(
        "--nproc", 2, WORKERS / "fail.py", 0, "exit", 4, environ=clean_environ(TMPDIR=str(tmp_path))
    )
    assert done.returncode == 4
    assert list(tmp_path.iterdir()) == []
    assert not processes_with(mark)


def test_ranks_find_each_other_through_torch():
    done = launch("--nproc", 2, WORKERS / "prove.py")
    assert done.returncode == 0, done.stderr
    assert [worker["proved"] for worker in reports(done.stdout)] == [True] * 2


def test_the_launcher_imports_neither_torch_nor_numpy():
    done = run(
        sys.executable, "-X", "importtime", "-m", "spawnlaunch", "--no-python", "true", check=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "spawnlaunch.run.supervisor" in imported
    slow = {"torch", "numpy", "psutil", "dataclasses", "subprocess", "socket", "selectors"}
    assert not slow & imported
