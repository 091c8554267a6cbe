"""What runs under torchrun prints the same as tasks of Slurm on two nodes."""

import shlex
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


@pytest.mark.parametrize("line", TASKS)
def test_as_tasks_on_two_nodes_a_program_prints_the_same(
    line: Line, slurm: Slurm, tmp_path: Path
) -> None:
    require_packages(*line.needs, group="nightly")
    theirs = run_steadily(line, start_torchrun, tmp_path / "theirs", {})
    printed = [text for name, text in theirs.files.items() if name.endswith("stdout.log")]
    words = shlex.split(line.text[line.text.index("{scripts}") :].format(scripts=SCRIPTS))
    environ = {"PYTHONPATH": str(ROOT), **QUIET, "SLURM_KILL_BAD_EXIT": "1"}
    environ |= {name: value.format(root=ROOT) for name, value in line.environ.items()}
    (tmp_path / "cwd").mkdir()
    step = ["srun", "-N2", "-n2", *LAUNCHER, *words]
    done = slurm.run(step, env=environ, cwd=tmp_path / "cwd", timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted("".join(printed).splitlines())
