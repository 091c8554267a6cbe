"""spawnlaunch.top in a step beside a job's: all nodes in one table."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import DEVNULL

import pytest

from tests.cluster.slurm import Slurm, require_slurm
from tests.slurm.scripts import environ
from tests.support.launching import LAUNCHER, ROOT
from tests.support.patience import PATIENCE_S
from tests.support.processes import until

require_slurm()
pytestmark = pytest.mark.full

TOP = ("--overlap", sys.executable, "-m", "spawnlaunch.top", "--once")
THERE = "open(f\"{os.environ['THERE']}/{os.environ['RANK']}\", 'w').close()"
SLEEP = f"import os, time\n{THERE}\ntime.sleep(600)\n"


@pytest.fixture
def start(slurm: Slurm, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a script as four ranks on two nodes, and gives the number of the job."""
    started = []

    def start(text: str, each: int, *flags: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(text)
        size = ("--nodelist=node[0-1]", f"--ntasks-per-node={each}", "--cpu-bind=none")
        step = ["srun", *size, *LAUNCHER, "--quiet", *flags, script]
        env = environ(THERE=str(tmp_path))
        started.append(slurm.popen(step, env=env, stdout=DEVNULL, stderr=DEVNULL))
        until(lambda: all((tmp_path / str(rank)).exists() for rank in range(4)), "four ranks run")
        return slurm.run(["squeue", "--noheader", "--format=%i"]).stdout.strip()

    yield start
    slurm.cancel_all()
    for running in started:
        running.wait(PATIENCE_S)


@pytest.mark.parametrize(("each", "flags"), [(2, ()), (1, ("--nproc", "2"))])
def test_all_nodes_are_in_one_table_that_is_printed_once(
    slurm: Slurm, start: Callable[..., str], each: int, flags: tuple[str, ...]
) -> None:
    """Of tasks, and of a launcher on each node."""
    step = ["srun", "--jobid", start(SLEEP, each, *flags), *TOP]
    done = slurm.run(step, env=environ())
    assert (done.returncode, done.stderr) == (0, "")
    title, heading, *rows = done.stdout.splitlines()
    assert ": 4 ranks  " in title
    assert heading.split()[:3] == ["host", "rank", "pid"]
    assert [row.split()[:2] for row in rows] == [
        *(["node0", "0"], ["node0", "1"], ["node1", "2"], ["node1", "3"])
    ]
    lines = slurm.run([*step, "--json"], env=environ()).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [(one["host"], one["rank"]) for one in found if "pid" in one] == [
        *(("node0", 0), ("node0", 1), ("node1", 2), ("node1", 3))
    ]
    assert len({one["launch"] for one in found}) == 1


MUTE = """
import os, sys
if os.environ.get("SLURMD_NODENAME") == "node1" and "--of-a-node" in sys.orig_argv:
    os._exit(0)
"""


def test_a_node_that_says_nothing_is_named_and_without_srun_there_is_one(
    slurm: Slurm, start: Callable[..., str], tmp_path: Path
) -> None:
    job = start(SLEEP, 2)
    (tmp_path / "mute").mkdir()
    (tmp_path / "mute/sitecustomize.py").write_text(MUTE)
    mute, lost = (f"PYTHONPATH={tmp_path / 'mute'}:{ROOT}", "PATH=/nowhere")
    for change, said in (
        (mute, "warning: nothing came from node1"),
        (lost, "warning: cannot start srun: No such file or directory; this is node0 alone"),
    ):
        step = ["srun", "--jobid", job, TOP[0], "/usr/bin/env", change, *TOP[1:]]
        done = slurm.run(step, env=environ())
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
        first = [line.split()[0] for line in done.stdout.splitlines()]
        assert [word for word in first if word in "0123"] == ["0", "1"]
