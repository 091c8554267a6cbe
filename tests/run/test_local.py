"""One machine: what workers get."""

import os
import sys

import pytest

from tests.support.launching import LAUNCHER, WORKERS, clean_environ, launch, reports, run

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
        assert worker["write_through"]
    for name, count in (
        ("MASTER_PORT", 1),
        ("TORCHELASTIC_RUN_ID", 1),
        ("TORCHELASTIC_ERROR_FILE", 3),
    ):
        assert len({w["environ"][name] for w in workers}) == count
    assert len({worker["ppid"] for worker in workers}) == 1


def test_variables_of_the_user_win_but_stale_ranks_do_not_and_cpus_are_shared_out():
    stale = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    own = {"OMP_NUM_THREADS": "5", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "MY_OWN": "kept"}
    done = launch("--nproc", 2, WORKERS / "report.py", environ=clean_environ(**stale, **own))
    shares = [set(worker["cpus"]) for worker in reports(done.stdout)]
    allowed = os.sched_getaffinity(0)
    if len(allowed) > 1:
        assert shares[0] | shares[1] == allowed
        assert not shares[0] & shares[1]
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


def test_a_module_runs_as_python_runs_it():
    done = launch("--nproc", 2, "-m", "tests.workers.report", "--flag")
    assert [w["argv"][1:] for w in reports(done.stdout)] == [["--flag"]] * 2


def test_a_mask_that_somebody_set_is_not_left():
    cpu = min(os.sched_getaffinity(0))
    done = run("taskset", "-c", cpu, *LAUNCHER, "--nproc", "2", WORKERS / "report.py", check=True)
    assert [worker["cpus"] for worker in reports(done.stdout)] == [[cpu], [cpu]]


@pytest.mark.full
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
