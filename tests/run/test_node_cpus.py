"""The CPUs of the node, for what one rank does while the others wait."""

import json
import os
from pathlib import Path

import pytest

import spawnlaunch
from spawnlaunch import cpuset
from tests.support.launching import clean_environ, launch

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
