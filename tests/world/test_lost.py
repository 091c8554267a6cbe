"""Whatever is missing of what Slurm gave: ranks decide as with all of it, or the error names it.

Another seed and more jobs: python -m tests.world.test_lost SEED JOBS
"""

import random
import re
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest

from spawnlaunch import cli
from spawnlaunch.errors import UsageError
from spawnlaunch.flags import Request
from spawnlaunch.world.gathering import Gathering
from spawnlaunch.world.identity import Capacity, World
from spawnlaunch.world.managers import slurm
from spawnlaunch.world.resolve import resolve_world
from tests.support.launching import explain
from tests.world import whole_slurm
from tests.world.slurm_jobs import Job, Task, random_job
from tests.world.test_ranks_agree import SCRIPT, outcome

JOBS = 200
Decided = tuple[World, Gathering | None] | str

# Slurm sets these only where they were asked for: without them it is another job, and a whole one.
ASKED_FOR = {
    *("SLURM_STEP_RESV_PORTS", "SLURM_DISTRIBUTION", "SLURM_HOSTFILE", "SLURM_GPUS_PER_NODE"),
}
ASKED_FOR_TOGETHER = {"SLURM_NTASKS", "SLURM_NPROCS"}  # -n


def decided(task: Task, request: Request, missing: Iterable[str] = ()) -> Decided:
    """What a task derives without these variables, or the line that refuses it."""
    environ = {k: v for k, v in task.environ.items() if k not in missing}
    devices = 0 if isinstance(request.nproc, int) else task.devices
    try:
        with patch.object(slurm.STEP, "given", lambda: task.given):  # in place of real parents
            found = resolve_world(request, environ, task.hostname, Capacity(devices, task.devices))
    except UsageError as error:
        return str(error)
    meeting = found.gathering and found.gathering._replace(expected=())  # names, for what is said
    return without_a_name(found.world), meeting


def without_a_name(world: World) -> World:
    """A job that is this process's alone has a name that is made up."""
    return world._replace(run_id="") if world.run_id.startswith("local-") else world


def without(job: Job, name: str) -> Job:
    """A job that never had the variable."""
    tasks = []
    for task in job.tasks:
        environs = [
            each and {k: v for k, v in each.items() if k != name}
            for each in (task.environ, task.given)
        ]
        tasks.append(task._replace(environ=environs[0] or {}, given=environs[1]))
    return job._replace(tasks=tasks)


def without_sources(line: Decided) -> Decided:
    """An error without the variables that its values come from."""
    while isinstance(line, str) and line != (shorter := re.sub(r" \([^()]*\)", "", line)):
        line = shorter
    return line


def check(job: Job, missing: set[str]) -> str:
    """How the ranks decide without these variables. Raises AssertionError."""
    for name in missing & ASKED_FOR:
        job = without(job, name)
    if missing & ASKED_FOR:
        outcome(job, job.says)
    words = [*job.flags, *(["--nproc", str(job.nproc)] if job.nproc else []), SCRIPT]
    request = cli.parse(words, {}, "python")
    whole = [decided(task, request) for task in job.tasks]
    found = [decided(task, request, missing) for task in job.tasks]
    if [*map(without_sources, found)] == [*map(without_sources, whole)]:
        return "as with all"
    said = f"{job.says}, without {sorted(missing)}:\n{found}\nand with all:\n{whole}"
    for line in found:
        assert isinstance(line, str), said
        assert any(name in line for name in missing), said
        assert "srun is missing" not in line, said
    return "refused"


@pytest.mark.parametrize("name", whole_slurm.PROCESSES)
def test_one_variable_that_is_missing_is_no_loss(name: str):
    job = whole_slurm.job(name)
    names = {each for task in job.tasks for each in task.environ}
    ends = {each: check(job, {each}) for each in names}
    assert {each for each, end in ends.items() if end != "as with all"} == set()


@pytest.mark.parametrize("name", whole_slurm.PROCESSES)
@pytest.mark.parametrize("most", [60, pytest.param(None, marks=pytest.mark.full)])
def test_two_variables_that_are_missing_are_no_loss_or_are_named(name: str, most: int | None):
    job = whole_slurm.job(name)
    names = sorted({each for task in job.tasks for each in task.environ})
    pairs = [pair for pair in map(set, combinations(names, 2)) if pair != ASKED_FOR_TOGETHER]
    random.Random(1).shuffle(pairs)
    for pair in pairs[:most]:
        check(job, pair)


def of_slurm(explained: dict[str, Any]) -> dict[str, str]:
    """What the first worker has of Slurm's variables that is its own."""
    environ = explained["workers"][0]["env"]
    return {name: value for name, value in environ.items() if name.startswith("SLURM")}


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_STEP_ID"])
def test_all_that_is_said_of_slurm_is_as_with_the_variable_that_is_missing(
    name: str, tmp_path: Path
):
    """Of the mask, of the time until Slurm kills, and in the workers' environment."""
    (tmp_path / "slurm.conf").write_text("KillWait=5\n")
    bound = {"SLURM_CPU_BIND_TYPE": "mask_cpu:", "SLURM_CPU_BIND_LIST": "0x1"}
    whole = whole_slurm.LAUNCHERS[0] | bound | {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    flags = ("--nproc", 2, "--allowed-cpus", 0, "--grace", 40, "--rewrite-slurm-env")
    told = explain(*flags, **whole)
    found = explain(*flags, **{k: v for k, v in whole.items() if k != name})
    missing, *others = found["warnings"]
    assert f": {name}" in missing
    assert others == told["warnings"]
    assert any("--cpus-per-task" in line for line in others)
    assert any("KillWait" in line for line in others)
    assert of_slurm(found) == of_slurm(told) != {}


def of_two_components(flags: str = "") -> Job:
    """A step of a heterogeneous job, whose list has the second component's node first."""
    size = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_HET_SIZE": "2"}
    lists = {"SLURM_STEP_NODELIST": "node[0-1]", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    groups = {f"SLURM_JOB_ID_HET_GROUP_{i}": str(7 + i) for i in (0, 1)}
    groups |= {f"SLURM_JOB_NODELIST_HET_GROUP_{i}": f"node{1 - i}" for i in (0, 1)}
    tasks = [
        {**whole_slurm.JOB, **whole_slurm.STEP, **size, **lists, **groups}
        | whole_slurm.of_a_process(rank, 0, 1 - rank, str(rank))
        | {"SLURM_NODEID": str(rank)}
        for rank in (0, 1)
    ]
    named = [Task(environ, None, environ["SLURMD_NODENAME"], 1) for environ in tasks]
    return Job(named, flags.split(), None, "of two components")


@pytest.mark.parametrize(
    "name", ["SLURM_NODEID", "SLURMD_NODENAME", "SLURM_PROCID", "SLURM_HET_SIZE"]
)
def test_nodes_count_in_the_order_of_components(name: str):
    assert outcome(of_two_components(), "whole") == "one world"
    assert check(of_two_components(), {name}) == "as with all"


@pytest.mark.parametrize(
    ("job", "missing", "end"),
    [
        (whole_slurm.job("tasks"), "SLURM_STEP_NODELIST SLURM_JOB_NODELIST", "refused"),
        (whole_slurm.job("launchers"), "SLURM_STEP_NODELIST SLURM_JOB_NODELIST", "refused"),
        (whole_slurm.job("batch script"), "SLURM_JOB_NODELIST SLURM_NODELIST", "refused"),
        (whole_slurm.job("batch script on one node"), "SLURM_JOB_NODELIST SLURM_NODELIST",
         "refused"),
        (of_two_components("--master-addr=node1"), "SLURM_STEP_NODELIST", "refused"),
    ],
)  # fmt: skip
def test_a_list_of_nodes_that_nothing_else_has_is_named(job: Job, missing: str, end: str):
    assert check(job, set(missing.split())) == end


def test_a_component_of_which_nothing_says_how_many_tasks_it_has_here_is_asked_for():
    """This node has another name in the list, and the ranks of its tasks are not listed."""
    job = of_two_components()
    task = job.tasks[0]._replace(environ=job.tasks[0].environ | {"SLURMD_NODENAME": "elsewhere"})
    request = cli.parse([SCRIPT], {}, "python")
    line = decided(task, request, {"SLURM_GTIDS"})
    assert isinstance(line, str)
    assert "type --local-world-size" in line


def test_a_job_has_no_more_components_than_slurm_can_give_it():
    """MAX_HET_JOB_COMPS of slurm.h: a larger number is a mistake, and is not counted through."""
    environ = {f"{slurm.JOB_ID}_HET_GROUP_{i}": str(i) for i in range(200)}
    for size, count in (("2", 2), ("128", 128), ("129", 128), ("9" * 12, 128)):
        assert len(slurm.of_components(slurm.JOB_ID, {**environ, "SLURM_HET_SIZE": size})) == count


def test_what_is_missing_in_any_job_is_no_loss_or_is_named(tmp_path: Path):
    ends = check_jobs(seed=1, jobs=JOBS, directory=tmp_path)
    assert ends["as with all"] > JOBS / 2
    assert ends["refused"] > 0


def check_jobs(seed: int, jobs: int, directory: Path) -> Counter[str]:
    """How many came to which end."""
    ends = Counter[str]()
    for i in range(jobs):
        generator = random.Random(f"{seed}.{i}")
        job = random_job(generator, directory)
        names = sorted({e for task in job.tasks for e in task.environ if e.startswith("SLURM")})
        missing = set(generator.sample(names, min(generator.choice([1, 2]), len(names))))
        ends[check(job._replace(says=f"seed {seed}, job {i}: {job.says}"), missing)] += 1
    return ends


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        print(check_jobs(int(sys.argv[1]), int(sys.argv[2]), Path(place)))
