"""spawnlaunch.top in a step beside a job's: all nodes in one table."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL

import pytest

from tests.cluster.slurm import Slurm, require_slurm
from tests.slurm.scripts import environ
from tests.support.launching import LAUNCHER
from tests.support.patience import PATIENCE_S
from tests.support.processes import until

require_slurm()

TOP = ("--overlap", sys.executable, "-m", "spawnlaunch.top", "--once")
SLEEP = (
    "import os, time\n"
    "open(f\"{os.environ['THERE']}/{os.environ['RANK']}\", 'w').close()\n"
    "time.sleep(600)\n"
)


@pytest.fixture(params=["tasks", "launchers"])
def job(slurm: Slurm, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The number of a job of four ranks on two nodes: of tasks, or of a launcher on each node."""
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEP)
    of_tasks = request.param == "tasks"
    size = ("--nodelist=node[0-1]", f"--ntasks-per-node={2 if of_tasks else 1}", "--cpu-bind=none")
    words = (*LAUNCHER, "--quiet", *(() if of_tasks else ("--nproc", "2")), script)
    running = slurm.popen(
        ["srun", *size, *words], env=environ(THERE=str(tmp_path)), stdout=DEVNULL, stderr=DEVNULL
    )
    until(lambda: all((tmp_path / str(rank)).exists() for rank in range(4)), "four ranks run")
    yield slurm.run(["squeue", "--noheader", "--format=%i"]).stdout.strip()
    slurm.cancel_all()
    running.wait(PATIENCE_S)


@pytest.mark.full
def test_all_nodes_are_in_one_table_that_is_printed_once(slurm: Slurm, job: str) -> None:
    done = slurm.run(["srun", "--jobid", job, *TOP], env=environ())
    assert done.returncode == 0, done.stderr
    title, heading, *rows = done.stdout.splitlines()
    assert ": 4 ranks  " in title
    assert heading.split()[:3] == ["host", "rank", "pid"]
    assert [row.split()[:2] for row in rows] == [
        *(["node0", "0"], ["node0", "1"], ["node1", "2"], ["node1", "3"])
    ]


@pytest.mark.full
def test_programs_get_all_of_it_too(slurm: Slurm, job: str) -> None:
    done = slurm.run(["srun", "--jobid", job, *TOP, "--json"], env=environ())
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["host"], one["rank"]) for one in found if "pid" in one] == [
        *(("node0", 0), ("node0", 1), ("node1", 2), ("node1", 3))
    ]
    assert len({one["launch"] for one in found}) == 1


@pytest.mark.full
def test_a_task_that_reaches_nobody_prints_its_own_table_and_says_so(
    slurm: Slurm, job: str
) -> None:
    words = "test $SLURM_NODEID = 0 && exit 0; exec " + " ".join(TOP[1:])
    done = slurm.run(["srun", "--jobid", job, TOP[0], "sh", "-c", words], env=environ())
    assert done.returncode == 1
    rows = [line.split()[:2] for line in done.stdout.splitlines()]
    assert [row[0] for row in rows if row[0] in "0123"] == ["2", "3"]
    assert "spawnlaunch.top: warning: cannot reach node0 on port" in done.stderr
    assert "this is node1 alone" in done.stderr


@pytest.mark.full
def test_a_node_from_which_nothing_comes_is_named(slurm: Slurm, job: str) -> None:
    words = "test $SLURM_NODEID = 1 && exit 0; exec " + " ".join(TOP[1:])
    done = slurm.run(["srun", "--jobid", job, TOP[0], "sh", "-c", words], env=environ())
    assert done.returncode == 1
    assert "nothing came from node1" in done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines()]
    assert [row[0] for row in rows if row[0] in "0123"] == ["0", "1"]


LATE = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
while True:
    if os.environ["RANK"] == "3":
        time.sleep(0.2)  # here
    dist.all_reduce(torch.ones(4))
"""


@pytest.mark.full
def test_a_rank_is_waited_for_on_another_node(slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(LATE)
    size = ("--nodelist=node[0-1]", "--ntasks-per-node=2", "--cpu-bind=none")
    words = (*LAUNCHER, "--quiet", script)
    running = slurm.popen(["srun", *size, *words], env=environ(), stdout=DEVNULL, stderr=DEVNULL)

    def is_named() -> bool:
        job = slurm.run(["squeue", "--noheader", "--format=%i"]).stdout.strip()
        done = slurm.run(["srun", "--jobid", job, *TOP], env=environ()) if job else None
        return done is not None and any(
            line.startswith("  ! rank 3: ") and "it is at late.py:6 (clocks within " in line
            for line in done.stdout.splitlines()
        )

    try:
        until(is_named, "rank 3 is named")
    finally:
        slurm.cancel_all()
        running.wait(PATIENCE_S)
