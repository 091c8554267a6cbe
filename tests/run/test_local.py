"""One machine: what workers get, in their environment, their arguments and CPUs."""

import json
import os
from pathlib import Path

import pytest

import spawnlaunch
from spawnlaunch.base import cpuset
from tests.support.launching import (
    LAUNCHER,
    REPORTER,
    WORKERS,
    clean_environ,
    explain,
    launch,
    reports,
    run,
)
from tests.support.matrix import mostly_full

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


MODULE = ("-m", "tests.workers.report", "a")


@pytest.mark.parametrize(
    ("flags", "script", "words"),
    mostly_full(
        [
            (["--local-rank-arg", "hyphen"], (REPORTER, "a"), ["--local-rank=0", "--local-rank=1"]),
            (
                ["--local-rank-arg", "underscore", "--preload", "json"],
                (REPORTER, "a"),
                ["--local_rank=0", "--local_rank=1"],
            ),
            (
                ["--local-rank-arg", "underscore", "--virtual-local-rank"],
                (REPORTER, "a"),
                ["--local_rank=0"] * 2,
            ),
            (["--local-rank-arg", "hyphen"], MODULE, ["--local-rank=0", "--local-rank=1"]),
            (["--local-rank-arg", "none"], (REPORTER, "a"), None),
            ([], (REPORTER, "a"), None),
        ],
        2,
    ),
)
def test_the_local_rank_comes_before_the_scripts_arguments(flags, script, words):
    done = launch("--nproc", 2, *flags, *script)
    assert done.returncode == 0, done.stderr
    argv = [worker["argv"][1:] for worker in reports(done.stdout)]
    assert argv == ([[word, "a"] for word in words] if words else [["a"]] * 2)


def test_so_does_a_program(tmp_path):
    show = tmp_path / "show"
    show.write_text('#!/bin/sh\necho "$@"\n')
    show.chmod(0o755)
    done = launch(
        "--nproc", 2, "--prefix=never", "--local-rank-arg=hyphen", "--no-python", show, "a"
    )
    assert sorted(done.stdout.splitlines()) == ["--local-rank=0 a", "--local-rank=1 a"]


@pytest.mark.parametrize(
    ("listed", "shown"), [("3", "333"), ("4,5,", "454"), (None, "012"), ("", ["", "", ""])]
)
def test_ranks_that_share_devices_go_around_as_their_cpus_do(listed, shown):
    words = ("--nproc", 3, "--oversubscribe", "--virtual-local-rank")
    environ = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    workers = [environ | one["env"] for one in explain(*words, **environ)["workers"]]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in workers] == [*shown]
    assert {one["LOCAL_RANK"] for one in workers} == {"0"}


ALL = os.sched_getaffinity(0)
needs_two_cpus = pytest.mark.skipif(len(ALL) < 2, reason="two ranks need two CPUs to be apart")

SCRIPT = """
import json, os, subprocess, sys, threading
import spawnlaunch
seen = {"before": sorted(os.sched_getaffinity(0))}
def look(): seen["thread"] = sorted(os.sched_getaffinity(0))
with spawnlaunch.node_cpus():
    seen["within"] = sorted(os.sched_getaffinity(0))
    thread = threading.Thread(target=look); thread.start(); thread.join()
    ask = "import os; print(len(os.sched_getaffinity(0)))"
    seen["child"] = int(subprocess.check_output([sys.executable, "-c", ask]))
seen["after"] = sorted(os.sched_getaffinity(0))
os.write(1, (json.dumps(seen) + "\\n").encode())
"""


@needs_two_cpus
def test_a_rank_has_the_nodes_cpus_for_the_time_and_its_own_again(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = launch("--quiet", "--nproc", 2, script)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == 2, done.stderr
    for seen in told:
        assert seen["before"] == seen["after"] != sorted(ALL)
        assert seen["within"] == seen["thread"] == sorted(ALL)
        assert seen["child"] == len(ALL)


def test_of_an_outer_launch_nothing_is_left_where_nobody_is_bound():
    say = "echo ${SPAWNLAUNCH_NODE_CPUS-unset}"
    words = ("--quiet", "--nproc", 2, "--no-python", "sh", "-c", say)
    outer = clean_environ(SPAWNLAUNCH_NODE_CPUS="0")
    done = launch("--bind", "none", *words, environ=outer)
    assert done.stdout.split() == ["unset", "unset"]
    assert launch(*words, environ=outer).stdout.split() == [cpuset.format(ALL)] * 2


@pytest.mark.parametrize("value", [None, "", "nonsense", "100000"])
def test_under_another_launcher_nothing_changes(value: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SPAWNLAUNCH_NODE_CPUS", raising=False)
    if value is not None:
        monkeypatch.setenv("SPAWNLAUNCH_NODE_CPUS", value)
    with spawnlaunch.node_cpus():
        assert os.sched_getaffinity(0) == ALL
    assert os.sched_getaffinity(0) == ALL


@pytest.mark.full
@needs_two_cpus
def test_prepare_of_the_training_loop_has_them(tmp_path: Path):
    task = tmp_path / "my_task.py"
    task.write_text(
        "import os, torch\n"
        "class Task:\n"
        "    def prepare(self, directory):\n"
        "        (directory / 'cpus').write_text(str(len(os.sched_getaffinity(0))))\n"
        "    def prepared(self, directory):\n"
        "        self.own = len(os.sched_getaffinity(0))\n"
        "        (directory / f'own-{os.environ[\"RANK\"]}').write_text(str(self.own))\n"
        "    def model(self): return torch.nn.Linear(1, 1)\n"
        "    def dataset(self, split): return [torch.ones(1)] * 8\n"
        "    def loss(self, model, batch): return model(batch).sum(), len(batch)\n"
    )
    words = ("--task", f"{task}:Task", "--steps", 1, "--batch-size", 2, "--out", tmp_path / "out")
    done = launch("--quiet", "--nproc", 2, "--", *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/cpus").read_text() == str(len(ALL))
    for rank in (0, 1):
        assert int((tmp_path / f"out/own-{rank}").read_text()) < len(ALL)
