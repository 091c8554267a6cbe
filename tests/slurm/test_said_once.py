"""What every task of a step comes to is said once, by the programs beside the launcher as well."""

import sys

import pytest

from tests.cluster.slurm import Slurm, require_slurm

require_slurm()

STEP = ("srun", "-N2", "-n4", sys.executable)


@pytest.mark.parametrize("program", ["bench", "check"])
def test_torch_that_is_missing_is_said_once_for_each_node(slurm: Slurm, program: str) -> None:
    done = slurm.run([*STEP, "-S", "-m", f"spawnlaunch.{program}"])  # -S: nothing is installed
    said = f"spawnlaunch.{program}: error: torch is not installed; type pip install torch\n"
    assert (done.returncode, done.stderr.count(said)) == (2, 2)


def test_flags_of_the_bench_that_cannot_be_are_said_once(slurm: Slurm) -> None:
    done = slurm.run([*STEP, "-m", "spawnlaunch.bench", "--arms", "north"])
    assert (done.returncode, done.stderr.count("spawnlaunch.bench: error: ")) == (2, 1)
