"""torchrun's lines in a Slurm job: in a shell of one node, of two, and as tasks on two nodes."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, require_slurm
from tests.support.launching import LAUNCHER, ROOT
from tests.support.patience import PATIENCE_S
from tests.support.required import require_packages
from tests.torchrun.lines import SCRIPTS, Line
from tests.torchrun.programs import CLIENTS, program
from tests.torchrun.runner import QUIET, run_steadily, start_torchrun

require_slurm()
pytestmark = pytest.mark.full
TASKS = [
    pytest.param(program("ddp"), id="ddp"),
    *(pytest.param(each, id=each.script, marks=pytest.mark.nightly) for each in CLIENTS),
]


def test_in_a_shell_of_one_node_a_line_does_the_same(slurm: Slurm) -> None:
    words = [sys.executable, "-m", "tests.torchrun", "--redirects 3 --nproc-per-node 2 train.py"]
    done = slurm.salloc(["-N1"], words, cwd=ROOT, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files: log files\n" in done.stdout


@pytest.mark.parametrize("line", TASKS)
def test_as_tasks_on_two_nodes_a_program_prints_the_same(
    line: Line, slurm: Slurm, tmp_path: Path
) -> None:
    require_packages(*line.needs, group="nightly")
    theirs = run_steadily(line, start_torchrun, tmp_path / "theirs", {}, {})
    printed = [text for name, text in theirs.files.items() if name.endswith("stdout.log")]
    words = shlex.split(line.text[line.text.index("{scripts}") :].format(scripts=SCRIPTS))
    environ = {"PYTHONPATH": str(ROOT), **QUIET, "SLURM_KILL_BAD_EXIT": "1"}
    environ |= {name: value.format(root=ROOT) for name, value in line.environ.items()}
    (tmp_path / "cwd").mkdir()
    step = ["srun", "-N2", "-n2", *LAUNCHER, *words]
    done = slurm.run(step, env=environ, cwd=tmp_path / "cwd", timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted("".join(printed).splitlines())


@pytest.mark.parametrize("command", ["salloc", "sbatch"])
def test_in_a_shell_of_two_nodes_the_two_lines_to_type_are_shown(
    command: str, slurm: Slurm, tmp_path: Path
) -> None:
    (tmp_path / "x.py").write_text("import os; print('rank', os.environ['RANK'])\n")
    line = f"{sys.executable} -m spawnlaunch --quiet --no-prefix --nproc_per_node=2"
    batch = f"cd {tmp_path}; {line} x.py 2>&1; {line} --standalone x.py 2>&1; true\n"
    if command == "sbatch":
        said = slurm.sbatch(f"#!/bin/sh\n{batch}", "--nodes=2").output
    else:
        said = slurm.salloc(["-N2"], ["sh", "-c", batch]).stdout
    error, *ran = [text for text in said.splitlines() if "warning" not in text]
    assert "a Slurm job with 2 nodes" in error
    assert "srun is missing; type srun --nodes=2" in error
    assert "for this machine alone: " in error
    assert "--standalone" in error
    assert sorted(ran) == ["rank 0", "rank 1"]
