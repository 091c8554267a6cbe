"""What a message tells the user to type under Slurm works where the message was."""

import os
import re

import pytest

from tests.cluster.slurm import require_slurm
from tests.slurm.asking import Asker, Result, line_after
from tests.support.launching import LAUNCHER, REPORTER, ROOT
from tests.support.truth import check

require_slurm()
pytestmark = pytest.mark.full

LAUNCH = " ".join(LAUNCHER)
KEPT = f"{LAUNCH} --preload=re --master-port=25930"  # flags that a line has to keep
FOUR = ("-N2", "--ntasks-per-node=2", "-c2")


class Place:
    """Where a line is typed: on the head node, in a batch script, or in a shell of a job."""

    def __init__(self, ask: Asker, kind: str, *options: str) -> None:
        self._ask, self._kind, self._options = ask, kind, options

    def type(self, line: str) -> Result:
        """What comes of the line there."""
        if self._kind == "login":
            return self._ask.run(["bash", "-c", line])
        if self._kind == "sbatch":
            return self._ask.sbatch(line, *self._options)
        if self._kind == "salloc":
            return self._ask.run(["salloc", "--quiet", *self._options, "bash", "-c", line])
        return self._ask.typed(line, *self._options)

    def refuses(self, line: str) -> str:
        """The error by which the line is refused."""
        result = self.type(line)
        assert (result.status, result.workers) == (2, []), result.stderr
        return result.stderr

    def works(self, line: str, world_size: int) -> Result:
        """What comes of a line that starts one world of this size."""
        result = self.type(line)
        assert result.status == 0, result.stderr
        assert "can't honor" not in result.stderr
        check(result.workers, world_size)
        return result


@pytest.mark.parametrize(
    ("kind", "options", "step"),
    [
        ("sbatch", (*FOUR, "--gpus-per-task=1"), "srun"),
        ("login", (), "srun -N2 --ntasks-per-node=2 -c2 --gpus-per-node=2"),
    ],
)
def test_one_launcher_per_node_instead_of_one_in_each_task(
    ask: Asker, kind: str, options: tuple[str, ...], step: str
) -> None:
    place = Place(ask, kind, *options)
    error = place.refuses(f"{step} {KEPT} --nproc=2 {REPORTER}")
    assert "one task per rank" not in error  # --preload is not for tasks
    result = place.works(line_after("one launcher per node:", error), 4)
    names = ("SLURM_CPUS_ON_NODE", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
    assert set(result.values(*names)) == {("4", "25930", "0,1")}


def test_one_task_per_rank_instead_of_a_launcher_in_each(ask: Asker) -> None:
    place = Place(ask, "login")
    error = place.refuses(f"srun -N2 -n3 {LAUNCH} --nproc 2 --quiet {REPORTER}")
    result = place.works(line_after("one task per rank:", error), 3)
    assert "rank 0  local 0" not in result.stderr  # --quiet


@pytest.mark.parametrize(
    ("kind", "options", "flags", "world_size"),
    [
        ("sbatch", FOUR, "--preload=re", 4),
        ("salloc", ("-N2",), "--nproc 3", 6),
        ("pty", ("-N2",), "", 2),
    ],
)
def test_srun_is_missing(
    ask: Asker, kind: str, options: tuple[str, ...], flags: str, world_size: int
) -> None:
    place = Place(ask, kind, *options)
    error = place.refuses(f"{LAUNCH} {flags} {REPORTER}")
    place.works(line_after("srun is missing; run", error), world_size)
    alone = place.type(line_after("for this machine alone:", error))
    assert alone.status == 0, alone.stderr
    nproc = re.search(r"--nproc.(\d)", flags)
    assert set(alone.values("WORLD_SIZE")) == {(nproc[1] if nproc else "1",)}


def test_a_task_with_a_terminal_is_a_rank_all_the_same(ask: Asker) -> None:
    step = f"srun -N2 -n2 --pty {LAUNCH} {REPORTER}"
    check(ask.run(["script", "-qec", step, "/dev/null"]).workers, 2)


def test_a_shell_on_no_node_of_its_job_runs_the_launcher_there(ask: Asker) -> None:
    place = Place(ask, "salloc", "-N1", "-n1", "-w", "node2")
    result = place.type(f"{LAUNCH} --nproc 2 {REPORTER}")
    assert "(SLURM_JOB_NODELIST=node2)" in result.stderr
    result = place.type(line_after("to run there, run", result.stderr))
    assert [worker["hostname"] for worker in result.workers] == ["node2", "node2"]
    assert "no node of its job" not in result.stderr


def test_standalone_makes_a_world_of_each_task(ask: Asker) -> None:
    result = ask.run(["srun", "-N1", "-n2", *LAUNCHER, "--standalone", "--nproc=2", REPORTER])
    assert result.status == 0, result.stderr
    worlds = set(result.values("MASTER_PORT", "SLURM_NTASKS", "WORLD_SIZE", "MASTER_ADDR"))
    assert [world[1:] for world in worlds] == [("2", "2", "127.0.0.1")] * 2
    runs = {run.rpartition("-")[2] for (run,) in result.values("TORCHELASTIC_RUN_ID")}
    assert runs == {"0", "1"}


CLEAN = f"env -i PATH={os.environ['PATH']} PYTHONPATH={ROOT}"


def test_a_batch_script_of_several_nodes_that_lost_its_variables_is_refused(ask: Asker) -> None:
    place = Place(ask, "sbatch", "-N2", "-n3")
    error = place.refuses(f"{CLEAN} {LAUNCH} {REPORTER}")
    assert "none of Slurm's variables (SLURM_STEP_NUM_TASKS) is here: a wrapper" in error
