"""Under a real Slurm each rank is told what is true of all ranks of its step."""

import json
from pathlib import Path

import pytest

from tests.cluster.slurm import require_slurm
from tests.slurm.asking import Asker
from tests.support.launching import LAUNCHER, REPORTER, WORKERS
from tests.support.truth import Report, check

require_slurm()
pytestmark = pytest.mark.full

PROVER = str(WORKERS / "meet.py")
LAUNCH, PROVE, REPORT = (" ".join(map(str, [*LAUNCHER, *w])) for w in ([], [PROVER], [REPORTER]))


@pytest.mark.parametrize(
    ("options", "world_size"),
    [("-N3 -n5 -m cyclic", 5), ("-N2 -n5 -m plane=2", 5), ("-N2 -n3", 3), ("-w node2 -n1", 1)],
)
def test_a_task_becomes_a_rank(ask: Asker, options: str, world_size: int) -> None:
    result = ask.run(["srun", *options.split(), *PROVE.split()])
    check(result.workers, world_size)
    for worker in result.workers:
        assert worker["environ"]["RANK"] == worker["environ"]["SLURM_PROCID"]


def variables(worker: Report) -> dict[str, str]:
    """Slurm's of a worker, but for those that tell one step from another."""
    assert worker["environ"]["SLURM_TASK_PID"] == str(worker["pid"])
    of_the_step = {
        *("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_LAUNCHER_PORT", "SLURM_SRUN_COMM_PORT"),
        "SLURM_TASK_PID",
    }
    names = [name for name in worker["environ"] if name.startswith("SLURM")]
    return {name: worker["environ"][name] for name in names if name not in of_the_step}


def test_workers_of_a_launcher_have_slurms_variables_as_tasks_have_them_unless_told_not_to(
    ask: Asker,
) -> None:
    node = f"SRUN_CPUS_PER_TASK=4 srun -n2 --ntasks-per-node=1 {LAUNCH} --nproc 2"
    result = ask.sbatch(
        f"SRUN_CPUS_PER_TASK=2 srun -n4 --ntasks-per-node=2 {REPORT}\n"
        f"{node} {REPORTER}\n{node} --no-rewrite-slurm-env {REPORTER}\n",
        *("-N2", "--ntasks-per-node=2", "-c2", "--gpus-per-node=2"),
    )
    tasks, rewritten, plain = result.steps()
    for workers in (tasks, rewritten, plain):
        check(workers, 4)
    assert [variables(worker) for worker in rewritten] == [variables(worker) for worker in tasks]
    assert [worker["environ"]["SLURM_PROCID"] for worker in plain] == ["0", "0", "1", "1"]


def test_steps_of_a_job_are_worlds_of_their_own(ask: Asker) -> None:
    both = f"srun -N2 -n2 --overlap --mem=0 {PROVE}"
    script = f"srun -N1 -n2 -w node1 {PROVE}\n{both} &\n{both} &\nwait"
    result = ask.sbatch(script, "-N2", "--ntasks-per-node=2", "-w", "node[0-1]")
    steps = result.steps()
    assert [worker["hostname"] for worker in steps[0]] == ["node1", "node1"]
    for workers in steps:
        check(workers, 2)
    assert len(steps) == len(set(result.values("MASTER_PORT"))) == 3


def test_components_of_a_heterogeneous_job_count_in_their_order(ask: Asker) -> None:
    result = ask.sbatch(
        "#SBATCH -w node3 -n1\n#SBATCH hetjob\n#SBATCH -w node0,node2 -n3\n"
        f"srun --het-group=0-1 {PROVE}\nsrun --het-group=1 {REPORT}\n"
    )
    whole, second = result.steps()
    check(whole, 4)
    assert whole[0]["hostname"] == "node3"
    check(second, 3)
    assert second[0]["hostname"] == "node0"


def test_a_batch_script_that_a_task_has_submitted_is_nobodys_rank(
    ask: Asker, tmp_path: Path
) -> None:
    script, explanation = tmp_path / "script", tmp_path / "explanation"
    script.write_text(f"#!/bin/sh\n{LAUNCH} --explain=json --nproc 3 {REPORTER}\n")
    submit = f"sbatch --wait -N1 -n1 -o {explanation} {script}"
    ask.run(["srun", "-n2", "sh", "-c", f"test $SLURM_PROCID = 1 || {submit}"])
    found = json.loads(explanation.read_text())
    assert (found["mode"], found["world"]["world_size"]) == ("local", 3)
