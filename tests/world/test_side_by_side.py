"""Tasks that share a machine without making one job, or more of them than there are cores."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, require_slurm, start
from tests.support.launching import LAUNCHER, REPORTER
from tests.support.required import skip_or_fail
from tests.world.asking import Asker, line_behind

require_slurm()


@pytest.mark.full
def test_standalone_makes_a_job_of_each_task_and_says_what_is_doubtful(ask: Asker):
    step = ["srun", "-N1", "-n2", *LAUNCHER, "--standalone", "--nproc=2", REPORTER]
    told = ask.run(step)
    assert told.status == 0, told.stderr
    sizes = {(w["environ"]["WORLD_SIZE"], w["environ"]["MASTER_ADDR"]) for w in told.workers}
    assert sizes == {("2", "127.0.0.1")}
    by_port = {w["environ"]["MASTER_PORT"]: w["environ"]["SLURM_PROCID"] for w in told.workers}
    assert sorted(by_port.values()) == ["0", "1"]
    runs = {w["environ"]["TORCHELASTIC_RUN_ID"] for w in told.workers}
    assert {run.rpartition("-")[2] for run in runs} == {"0", "1"}
    assert told.stderr.count("each of the 2 tasks") == 1
    one = ask.run(["bash", "-c", line_behind("for one job of all, type", told.stderr)])
    assert {w["environ"]["WORLD_SIZE"] for w in one.workers} == {"2"}
    assert len(one.workers) == 2


@pytest.mark.full
def test_standalone_on_each_node_shares_files_at_most(ask: Asker, tmp_path: Path):
    told = ask.run(["srun", "-N2", "-n2", *LAUNCHER, "--standalone", REPORTER])
    assert [w["environ"]["WORLD_SIZE"] for w in told.workers] == ["1", "1"]
    assert "--standalone makes" not in told.stderr
    result = ("--result", tmp_path / "result.json")
    told = ask.run(["srun", "-N2", "-n2", *LAUNCHER, "--standalone", *result, REPORTER])
    assert told.stderr.count(f"each writes --result {tmp_path}/result.json") == 1


@pytest.fixture(scope="module")
def bound() -> Iterator[Slurm]:
    """Nodes that claim what this machine has, two CPUs of it, and bind tasks to them."""
    if len(os.sched_getaffinity(0)) < 2:
        skip_or_fail("needs two CPUs")
    cluster = start(cpus=2, task_plugin="task/affinity")
    yield cluster
    cluster.stop()


@pytest.mark.full
def test_more_ranks_than_cpus_are_said_to_share_them(bound: Slurm):
    crowded = bound.run(["srun", "-N1", "-n3", "-O", *LAUNCHER, REPORTER])
    assert crowded.stderr.count("fewer cores than ranks") == 1
    assert crowded.stderr.count("(shares cores)") == 3
    apart = bound.run(["srun", "-N1", "-n2", "--cpu-bind=cores", *LAUNCHER, REPORTER])
    job = ["salloc", "--quiet", "-N1", "-n2", "--exclusive"]
    typed = bound.run([*job, "srun", "-n2", "--cpu-bind=map_cpu:1,0", *LAUNCHER, REPORTER])
    assert "share" not in apart.stderr + typed.stderr


@pytest.mark.full
def test_a_narrow_mask_is_left_with_the_options_that_are_advised(bound: Slurm):
    narrow = "the mask allows 1 core"
    rank = [*LAUNCHER, REPORTER]
    said = bound.run(["srun", "-n1", *rank]).stderr
    wider = line_behind("start with", said.partition(", or, in a job")[0])
    assert wider == "srun --cpus-per-task=2"
    assert narrow not in bound.run([*wider.split(), "-n1", *rank]).stderr
    job = ["salloc", "--quiet", "-N1", "-n1", "-c2"]
    said = bound.run([*job, "srun", "--cpu-bind=map_cpu:0", *rank]).stderr
    option = line_behind("start with", said)
    assert narrow not in bound.run([*job, *option.split(), *rank]).stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "typed", "left"),
    [
        (["srun", "--cpu-bind=none"], "--cpu-bind", "start with srun --cpus-per-task=2"),
        (["srun", "-c1", "--cpu-bind=none"], "srun --cpu", "sbatch --cpus-per-task=2 or --excl"),
        (["srun", "-c2", "--cpu-bind=none", "taskset", "-c", "0"], "srun", "without the taskset"),
        (["srun", "-c2", "taskset", "-c", "0"], "srun", "without the taskset"),
        (["salloc", "--quiet", "-n2", "srun", "-n1", "-c1"], "sbatch", "more than srun --cpus-per"),
    ],
    ids=["unbound", "unbound and asked", "unbound below taskset", "taskset", "less than the job"],
)
def test_an_option_that_was_typed_is_not_advised_again(bound: Slurm, words, typed, left):
    at = words.index("srun") + 1
    said = bound.run([*words[:at], "-N1", "-n1", *words[at:], *LAUNCHER, REPORTER]).stderr
    (advice,) = (line for line in said.splitlines() if "the mask allows 1 core" in line)
    assert left in advice
    assert typed not in advice.replace("more than srun", "")


@pytest.mark.full
def test_the_line_for_the_same_with_srun_binds_alike(bound: Slurm):
    job = ["salloc", "--quiet", "-N1", "-n1", "-c2"]
    explain = [*LAUNCHER, "--explain", "--nproc=2", REPORTER]
    line = line_behind(
        "the same with srun:", bound.run([*job, "srun", "--cpu-bind=none", *explain]).stdout
    )
    show = ["sh", "-c", "echo $(taskset -cp $$)"]
    tasks = bound.run([*job, *line.split(), *show]).stdout
    assert sorted(task.rpartition(" ")[2] for task in tasks.splitlines()) == ["0", "1"]
