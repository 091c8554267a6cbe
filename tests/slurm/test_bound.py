"""Nodes that claim what this machine has, two CPUs of it, where Slurm binds its tasks."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, require_slurm, start
from tests.slurm.asking import Asker, line_after
from tests.support.launching import LAUNCHER, REPORTER
from tests.support.required import skip_or_fail
from tests.support.truth import check

require_slurm()
pytestmark = pytest.mark.full

RANK = [*LAUNCHER, REPORTER]
NARROW = "the mask allows 1 core"


@pytest.fixture(scope="module")
def bound() -> Iterator[Slurm]:
    """A cluster that binds tasks, and has ports for MPI."""
    if len(os.sched_getaffinity(0)) < 2:
        skip_or_fail("needs two CPUs")
    ports = "MpiParams=ports=21000-21999\n"
    cluster = start(cpus=2, task_plugin="task/affinity", extra=ports)
    yield cluster
    cluster.stop()


def test_ports_that_slurm_reserves_are_used(bound: Slurm, tmp_path: Path) -> None:
    result = Asker(bound, tmp_path).run(["srun", "-N2", "-n2", *RANK])
    check(result.workers, 2)
    (port, reserved), _ = result.values("MASTER_PORT", "SLURM_STEP_RESV_PORTS")
    assert port == reserved.partition("-")[0]


def test_more_ranks_than_cpus_are_said_to_share_them(bound: Slurm) -> None:
    crowded = bound.run(["srun", "-N1", "-n3", "-O", *RANK])
    assert crowded.stderr.count("fewer cores than ranks") == 1
    assert crowded.stderr.count("(shares cores)") == 3
    job = ["salloc", "--quiet", "-N1", "-n2", "--exclusive"]
    for binding in ("cores", "map_cpu:1,0"):
        apart = bound.run([*job, "srun", "-n2", f"--cpu-bind={binding}", *RANK])
        assert apart.returncode == 0, apart.stderr
        assert "share" not in apart.stderr


def test_a_narrow_mask_is_left_with_what_is_advised(bound: Slurm) -> None:
    said = bound.run(["srun", "-n1", *RANK]).stderr
    assert NARROW in said
    advised = line_after("start with", said)
    assert advised == "srun --cpus-per-task=N, or in a job with more CPUs (sbatch --exclusive)"
    larger = ["salloc", "--quiet", "-N1", "-n1", "--exclusive", "srun", "-n1"]
    narrow = bound.run([*larger, "--cpu-bind=map_cpu:0", *RANK]).stderr
    assert line_after("start with", narrow).startswith("srun --cpu-bind=none, or with ")
    for step in (["srun", "-n1", "--cpus-per-task=2"], [*larger, "--cpu-bind=none"]):
        done = bound.run([*step, *RANK])
        assert done.returncode == 0, done.stderr
        assert NARROW not in done.stderr


def test_the_line_for_the_same_with_srun_binds_alike(bound: Slurm) -> None:
    job = ["salloc", "--quiet", "-N1", "-n1", "-c2", "srun", "--cpu-bind=none"]
    explained = bound.run([*job, *LAUNCHER, "--explain", "--nproc=2", REPORTER]).stdout
    line = line_after("the same with srun:", explained)
    show = ["sh", "-c", "echo $(taskset -cp $$)"]
    tasks = bound.run([*job[:-2], *line.split(), *show]).stdout
    assert sorted(task.rpartition(" ")[2] for task in tasks.splitlines()) == ["0", "1"]
