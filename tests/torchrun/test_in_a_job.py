"""torchrun's lines in a shell of a Slurm job: of one node, where they do the same, and of two."""

import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, require_slurm
from tests.dropin.launches import SHELL
from tests.dropin.test_around import AROUND, LONGEST_S

require_slurm()
pytestmark = pytest.mark.timeout(1200)


@pytest.mark.full
def test_the_rows_hold_in_a_shell_of_a_job(slurm: Slurm, tmp_path: Path) -> None:
    done = slurm.salloc(["-N1"], [*AROUND, tmp_path, SHELL], timeout=LONGEST_S)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


@pytest.mark.full
@pytest.mark.parametrize("words", [["salloc", "--quiet", "-N2"], ["sbatch"]])
def test_in_a_shell_of_two_nodes_the_two_lines_to_type_are_shown(
    words: list[str], slurm: Slurm, tmp_path: Path
) -> None:
    (tmp_path / "x.py").write_text("import os; print('rank', os.environ['RANK'])\n")
    line = f"{sys.executable} -m spawnlaunch --quiet --no-prefix --nproc_per_node=2"
    batch = f"cd {tmp_path}; {line} x.py 2>&1; {line} --standalone x.py 2>&1; true\n"
    if words == ["sbatch"]:
        said = slurm.sbatch(f"#!/bin/sh\n{batch}", "--nodes=2").output
    else:
        said = slurm.run([*words, "sh", "-c", batch]).stdout
    error, *ran = [text for text in said.splitlines() if "warning" not in text]
    assert "a Slurm job with 2 nodes" in error
    assert "srun is missing; type srun --nodes=2" in error
    assert "for this machine alone: " in error
    assert "--standalone" in error
    assert sorted(ran) == ["rank 0", "rank 1"]
