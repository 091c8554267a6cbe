"""With --rewrite-slurm-env a worker has the variables that a task of srun in its place has."""

import pytest

from tests.cluster.slurm import require_slurm
from tests.support.launching import LAUNCHER, WORKERS
from tests.world.asking import Asker

require_slurm()

REPORT = str(WORKERS / "report.py")
# What tells one step from another, whatever their tasks are.
OF_THE_STEP = {
    *("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_LAUNCHER_PORT", "SLURM_SRUN_COMM_PORT"),
    "SLURM_TASK_PID",
}


def variables(worker: dict) -> dict[str, str]:
    """Of Slurm, but for those of the step; the pid is compared with the worker's own."""
    assert worker["environ"]["SLURM_TASK_PID"] == str(worker["pid"])
    named = {k: v for k, v in worker["environ"].items() if k.startswith("SLURM")}
    return {name: value for name, value in named.items() if name not in OF_THE_STEP}


@pytest.mark.full
@pytest.mark.parametrize(
    ("nodes", "extra"),
    [
        (2, ""),
        pytest.param(1, "", marks=pytest.mark.full),
        pytest.param(2, "--preload=re", marks=pytest.mark.full),
    ],
)
def test_a_worker_has_what_a_task_of_srun_has(ask: Asker, nodes: int, extra: str):
    launch = " ".join(LAUNCHER)
    job = (f"-N{nodes}", "--ntasks-per-node=2", "-c2", "--gpus-per-node=2")
    script = "#!/bin/sh\nexport SRUN_CPUS_PER_TASK=%d\nsrun -N%d -n%d --ntasks-per-node=%d %s %s\n"
    real = ask.sbatch(script % (2, nodes, 2 * nodes, 2, launch, REPORT), *job)
    flags = f"{launch} --nproc 2 --rewrite-slurm-env {extra}"
    ours = ask.sbatch(script % (4, nodes, nodes, 1, flags, REPORT), *job)
    assert len(real.workers) == len(ours.workers) == 2 * nodes, ours.stdout
    for theirs, mine in zip(real.workers, ours.workers, strict=True):
        job_names = {"SLURM_JOB_ID", "SLURM_JOBID"}
        expected, got = variables(theirs), variables(mine)
        assert {k: v for k, v in got.items() if k not in job_names} == {
            k: v for k, v in expected.items() if k not in job_names
        }


@pytest.mark.full
def test_a_task_has_them_already(ask: Asker):
    told = ask.run(["srun", "-N1", "-n2", *LAUNCHER, "--rewrite-slurm-env", REPORT])
    names = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS")
    given = [tuple(worker["environ"][name] for name in names) for worker in told.workers]
    assert given == [("0", "0", "0,1"), ("1", "1", "0,1")]


@pytest.mark.full
def test_a_job_of_its_own_on_one_of_the_nodes_has_one_node(ask: Asker):
    step = ["srun", "-N2", "-n2", *LAUNCHER, "--standalone", "--nproc=2", "--rewrite-slurm-env"]
    told = ask.run([*step, REPORT])
    names = ("SLURM_NODEID", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE")
    given = {tuple(worker["environ"][name] for name in names) for worker in told.workers}
    assert given == {("0", "1", "2", "2")}
    for worker in told.workers:
        assert worker["environ"]["SLURM_STEP_NODELIST"] == worker["hostname"]
