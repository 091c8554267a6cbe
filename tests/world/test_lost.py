"""All ranks of a Slurm job derive one world, each by itself, or refuse: whatever is missing."""

import random
import re
from collections import Counter
from collections.abc import Collection
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from spawnlaunch import cli
from spawnlaunch.errors import UsageError
from spawnlaunch.world.gathering import Gathering
from spawnlaunch.world.identity import Capacity, Resolution, World
from spawnlaunch.world.managers import slurm
from spawnlaunch.world.resolve import resolve_world
from tests.support.launching import REPORTER, SLURM_TASK, explain
from tests.support.matrix import mostly_full
from tests.world import recorded
from tests.world.slurm_jobs import Environ, Job, Task, random_job

# Slurm sets these only where they were asked for: without them it is another job, and a whole one.
ASKED_FOR = {
    *("SLURM_STEP_RESV_PORTS", "SLURM_DISTRIBUTION", "SLURM_HOSTFILE", "SLURM_GPUS_PER_NODE"),
}
ASKED_FOR_TOGETHER = {"SLURM_NTASKS", "SLURM_NPROCS"}  # -n
WHOLE = recorded.read(Path(__file__).parent / "whole_slurm.json")


def whole(name: str) -> Job:
    """The processes of this name as a job, of which no parent shows anything."""
    of_job = WHOLE.content["jobs"][name]
    environs = [WHOLE.environ(parts) for parts in of_job["processes"]]
    hosts = [environ.get("SLURMD_NODENAME", "node0") for environ in environs]
    tasks = [Task(environ, None, host, 1) for environ, host in zip(environs, hosts, strict=True)]
    return Job(tasks, of_job["flags"].split(), None, name)


def resolved(job: Job, task: Task, missing: Collection[str] = ()) -> Resolution | str:
    """What a task derives without these variables, or the line that refuses it."""
    words = [*job.flags, *(["--nproc", str(job.nproc)] if job.nproc else []), str(REPORTER)]
    environ = {k: v for k, v in task.environ.items() if k not in missing}
    capacity = Capacity(0 if isinstance(job.nproc, int) else task.devices, task.devices)
    try:
        with patch.object(slurm.STEP, "given", lambda: task.given):  # in place of real parents
            return resolve_world(cli.parse(words, {}, "python"), environ, task.hostname, capacity)
    except UsageError as error:
        return str(error)


def outcome(job: Job) -> str:
    """How the ranks decide, who must agree. Raises AssertionError."""
    found = [resolved(job, task) for task in job.tasks]
    worlds = [each.world for each in found if isinstance(each, Resolution)]
    if not worlds:
        return "all refuse"
    ranks = [
        int(task.environ["SLURM_NODEID" if job.nproc else "SLURM_PROCID"]) for task in job.tasks
    ]
    first = found[ranks.index(0)]
    if isinstance(first, str):  # where rank 0 is only rank 0 can know, and it says so
        assert "rank 0 is on" in first, f"{job.says}\n{found}"
        return "rank 0 refuses"
    assert len(worlds) == len(found), f"{job.says}\n{found}"
    masters = {(each.master_addr, each.master_port) for each in worlds}
    assert len(masters) == 1, f"{job.says}\n{masters}"
    counts = {task.devices if job.nproc == "gpu" else job.nproc or 1 for task in job.tasks}
    if len(counts) > 1:  # sizes and ranks are told when the launchers have met
        return "the hub decides"
    (n,) = counts
    assert [each.rank for each in worlds] == [i * n for i in ranks], f"{job.says}\n{worlds}"
    assert {each.world_size for each in worlds} == {n * len(worlds)}, f"{job.says}\n{worlds}"
    return "one world"


def decisions(
    job: Job, missing: Collection[str] = ()
) -> list[tuple[World, Gathering | None] | str]:
    """What each task derives without these variables, but for names that are made up for it."""
    found: list[tuple[World, Gathering | None] | str] = []
    for each in (resolved(job, task, missing) for task in job.tasks):
        if isinstance(each, str):
            while each != (shorter := re.sub(r" \([^()]*\)", "", each)):
                each = shorter  # without the variables that values come from
            found.append(each)
            continue
        world = each.world
        if world.run_id.startswith("local-"):
            world = world._replace(run_id="")
        found.append((world, each.gathering and each.gathering._replace(expected=())))
    return found


def without(job: Job, name: str) -> Job:
    """A job that never had the variable."""

    def kept(environ: Environ) -> Environ:
        return {k: v for k, v in environ.items() if k != name}

    tasks = [
        task._replace(environ=kept(task.environ), given=task.given and kept(task.given))
        for task in job.tasks
    ]
    return job._replace(tasks=tasks)


def check(job: Job, missing: set[str]) -> str:
    """How the ranks decide without these variables. Raises AssertionError."""
    for name in missing & ASKED_FOR:
        job = without(job, name)
    if missing & ASKED_FOR:
        outcome(job)
    found, with_all = decisions(job, missing), decisions(job)
    if found == with_all:
        return "as with all"
    said = f"{job.says}, without {sorted(missing)}:\n{found}\nand with all:\n{with_all}"
    for line in (resolved(job, task, missing) for task in job.tasks):
        assert isinstance(line, str), said
        assert any(name in line for name in missing), said
        assert "srun is missing" not in line, said
    return "refused"


@pytest.mark.parametrize("jobs", mostly_full([150, 1000]))
def test_all_ranks_of_a_random_job_agree_or_all_refuse(tmp_path: Path, jobs: int) -> None:
    ends = Counter[str]()
    for i in range(jobs):
        job = random_job(random.Random(f"1.{i}"), tmp_path)
        ends[outcome(job._replace(says=f"job {i}: {job.says}"))] += 1
    assert ends["one world"] > jobs / 2


@pytest.mark.parametrize("jobs", mostly_full([120, 1000]))
def test_what_is_missing_in_a_random_job_is_no_loss_or_is_named(tmp_path: Path, jobs: int) -> None:
    ends = Counter[str]()
    for i in range(jobs):
        generator = random.Random(f"1.{i}")
        job = random_job(generator, tmp_path)
        names = sorted({e for task in job.tasks for e in task.environ if e.startswith("SLURM")})
        missing = set(generator.sample(names, min(generator.choice([1, 2]), len(names))))
        ends[check(job._replace(says=f"job {i}: {job.says}"), missing)] += 1
    assert ends["as with all"] > jobs / 2
    assert ends["refused"] > 0


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
def test_a_host_file_counts_where_it_fits_the_step(
    hosts: str, master: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "hosts"
    file.write_text(hosts.replace(" ", "\n"))
    environ = {
        **SLURM_TASK, "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_TASKS_PER_NODE": "1,2",
        "SLURM_DISTRIBUTION": "arbitrary", "SLURM_HOSTFILE": str(file), "SLURM_NODEID": "0",
    }  # fmt: skip
    task = Task(environ, None, "node1", 0)
    found = resolved(Job([task], [], None, ""), task)
    if isinstance(found, str):
        assert master is None
        assert "--master-addr" in found
    else:
        assert found.world.master_addr == master


@pytest.mark.parametrize("name", WHOLE.content["jobs"])
def test_one_variable_that_is_missing_is_no_loss(name: str) -> None:
    job = whole(name)
    names = {each for task in job.tasks for each in task.environ}
    assert {each: check(job, {each}) for each in names} == dict.fromkeys(names, "as with all")


@pytest.mark.parametrize("name", WHOLE.content["jobs"])
@pytest.mark.parametrize("most", mostly_full([40, None]))
def test_two_variables_that_are_missing_are_no_loss_or_are_named(
    name: str, most: int | None
) -> None:
    job = whole(name)
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
) -> None:
    """Of the mask, of the time until Slurm kills, and in the workers' environment."""
    (tmp_path / "slurm.conf").write_text("KillWait=5\n")
    bound = {"SLURM_CPU_BIND_TYPE": "mask_cpu:", "SLURM_CPU_BIND_LIST": "0x1"}
    environ = whole("launchers").tasks[0].environ | bound
    environ |= {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    flags = ("--nproc", 2, "--allowed-cpus", 0, "--grace", 40, "--rewrite-slurm-env")
    told = explain(*flags, **environ)
    found = explain(*flags, **{k: v for k, v in environ.items() if k != name})
    missing, *others = found["warnings"]
    assert f": {name}" in missing
    assert others == told["warnings"]
    assert any("--cpus-per-task" in line for line in others)
    assert any("KillWait" in line for line in others)
    assert of_slurm(found) == of_slurm(told) != {}


def of_two_components(flags: str = "") -> Job:
    """A step of a heterogeneous job, whose list has the second component's node first."""
    size = {"SLURM_HET_SIZE": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    groups = {f"SLURM_JOB_ID_HET_GROUP_{i}": str(7 + i) for i in (0, 1)}
    groups |= {f"SLURM_JOB_NODELIST_HET_GROUP_{i}": f"node{1 - i}" for i in (0, 1)}
    job = whole("launchers")
    tasks = []
    for rank, task in enumerate(job.tasks):
        node = f"node{1 - rank}"
        kept = {k: v for k, v in task.environ.items() if not k.startswith("SLURM_NTASKS_PER")}
        environ = {**kept, **size, **groups, "SLURMD_NODENAME": node}
        tasks.append(task._replace(environ=environ, hostname=node))
    return job._replace(tasks=tasks, flags=flags.split(), says="of two components")


@pytest.mark.parametrize(
    "name", ["SLURM_NODEID", "SLURMD_NODENAME", "SLURM_PROCID", "SLURM_HET_SIZE"]
)
def test_nodes_count_in_the_order_of_components(name: str) -> None:
    assert outcome(of_two_components()) == "one world"
    assert check(of_two_components(), {name}) == "as with all"


@pytest.mark.parametrize(
    ("job", "missing"),
    [
        (whole("tasks"), "SLURM_STEP_NODELIST SLURM_JOB_NODELIST"),
        (whole("launchers"), "SLURM_STEP_NODELIST SLURM_JOB_NODELIST"),
        (whole("batch script"), "SLURM_JOB_NODELIST SLURM_NODELIST"),
        (whole("batch script on one node"), "SLURM_JOB_NODELIST SLURM_NODELIST"),
        (of_two_components("--master-addr=node1"), "SLURM_STEP_NODELIST"),
    ],
)
def test_a_list_of_nodes_that_nothing_else_has_is_named(job: Job, missing: str) -> None:
    assert check(job, set(missing.split())) == "refused"


def test_a_component_of_which_nothing_says_how_many_tasks_it_has_here_is_asked_for() -> None:
    """This node has another name in the list, and the ranks of its tasks are not listed."""
    job = of_two_components()
    task = job.tasks[0]._replace(environ=job.tasks[0].environ | {"SLURMD_NODENAME": "elsewhere"})
    assert "type --local-world-size" in str(resolved(job, task, {"SLURM_GTIDS"}))


def test_a_job_has_no_more_components_than_slurm_can_give_it() -> None:
    """MAX_HET_JOB_COMPS of slurm.h: a larger number is a mistake, and is not counted through."""
    environ = {f"{slurm.JOB_ID}_HET_GROUP_{i}": str(i) for i in range(200)}
    for size, count in (("2", 2), ("128", 128), ("129", 128), ("9" * 12, 128)):
        assert len(slurm.of_components(slurm.JOB_ID, {**environ, "SLURM_HET_SIZE": size})) == count
