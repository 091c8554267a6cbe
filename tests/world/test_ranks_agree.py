"""All ranks of a job derive one address, one port and one size, each by itself: or all refuse.

Another seed and more jobs: python -m tests.world.test_ranks_agree SEED JOBS
"""

import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest

from spawnlaunch import cli
from spawnlaunch.errors import UsageError
from spawnlaunch.flags import Request
from spawnlaunch.world.identity import Capacity, World
from spawnlaunch.world.managers import slurm
from spawnlaunch.world.resolve import resolve_world
from tests.support.launching import SLURM_TASK, WORKERS
from tests.support.matrix import mostly_full
from tests.world.slurm_jobs import Job, Task, random_job

SCRIPT = str(WORKERS / "report.py")
JOBS = [150, 1000]


@pytest.mark.parametrize("jobs", mostly_full(JOBS))
def test_all_ranks_agree_or_all_refuse(tmp_path: Path, jobs: int):
    outcomes = check_jobs(seed=1, jobs=jobs, directory=tmp_path)
    assert outcomes["one world"] > jobs / 2


@pytest.mark.parametrize(
    ("hosts", "master"),
    [
        ("node2 node1 node2", "node2"),
        ("node2*1,node1 node2", "node2"),
        ("node1 node2 node2", "node1"),
        ("node1 node1 node2", None),  # it is not what srun went by
        ("node2 node3 node2", None),
        ("node2", None),
    ],
)
def test_a_host_file_counts_where_it_fits_the_step(hosts: str, master: str | None, tmp_path: Path):
    file = tmp_path / "hosts"
    file.write_text(hosts.replace(" ", "\n"))
    environ = {
        **SLURM_TASK, "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_TASKS_PER_NODE": "1,2",
        "SLURM_DISTRIBUTION": "arbitrary", "SLURM_HOSTFILE": str(file), "SLURM_NODEID": "0",
    }  # fmt: skip
    request = cli.parse([SCRIPT], {}, "python")
    found = derived(Task(environ, None, "node1", 0), request)
    if master is None:
        assert "--master-addr" in str(found)
    else:
        assert isinstance(found, World)
        assert found.master_addr == master


def check_jobs(seed: int, jobs: int, directory: Path) -> dict[str, int]:
    """How many jobs came to which end. Raises AssertionError with the first wrong one."""
    ends = ("one world", "all refuse", "rank 0 refuses", "the hub decides")
    outcomes = dict.fromkeys(ends, 0)
    for i in range(jobs):
        job = random_job(random.Random(f"{seed}.{i}"), directory)
        outcomes[outcome(job, f"seed {seed}, job {i}: {job.says}")] += 1
    return outcomes


def outcome(job: Job, says: str) -> str:
    """What came of a job; `says` is for the report of a failure."""
    words = [*job.flags, *(["--nproc", str(job.nproc)] if job.nproc else []), SCRIPT]
    request = cli.parse(words, {}, "python")
    found = [derived(task, request) for task in job.tasks]
    refusals = [each for each in found if isinstance(each, str)]
    worlds = [each for each in found if isinstance(each, World)]
    if not worlds:
        return "all refuse"
    first = found[ranks(job).index(0)]
    if isinstance(first, str):  # where rank 0 is only rank 0 can know, and it says so
        assert "rank 0 is on" in first, f"{says}\n{found}"
        return "rank 0 refuses"
    assert not refusals, f"{says}\n{refusals}"
    masters = {(each.master_addr, each.master_port) for each in worlds}
    assert len(masters) == 1, f"{says}\n{masters}"
    counts = {task.devices if job.nproc == "gpu" else job.nproc or 1 for task in job.tasks}
    if len(counts) > 1:  # sizes and ranks are told when the launchers have met
        return "the hub decides"
    (n,) = counts
    assert [each.rank for each in worlds] == [i * n for i in ranks(job)], f"{says}\n{worlds}"
    assert {each.world_size for each in worlds} == {n * len(worlds)}, f"{says}\n{worlds}"
    return "one world"


def ranks(job: Job) -> list[int]:
    """The order of the tasks' ranks: with a launcher per node, that of the nodes."""
    name = "SLURM_NODEID" if job.nproc else "SLURM_PROCID"
    return [int(task.environ[name]) for task in job.tasks]


def derived(task: Task, request: Request) -> World | str:
    """The world of a task, or the line that refuses it."""

    devices = 0 if isinstance(request.nproc, int) else task.devices
    capacity = Capacity(devices, task.devices)
    shown = patch.object(slurm.STEP, "given", lambda: task.given)  # in place of the real parents
    try:
        with shown:
            found = resolve_world(request, task.environ, task.hostname, capacity)
    except UsageError as error:
        return str(error)
    return found.world


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        print(check_jobs(int(sys.argv[1]), int(sys.argv[2]), Path(directory)))
