"""spawnlaunch.launch in a script that Slurm has started."""

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, require_slurm
from tests.slurm.scripts import environ
from tests.support.launching import ROOT
from tests.support.patience import PATIENCE_S
from tests.support.required import require_packages

require_slurm()
require_packages("cloudpickle")
pytestmark = pytest.mark.full

SCRIPT = """
import json, os, sys, spawnlaunch

def who():
    world = spawnlaunch.current_world()
    return world.rank, world.size, world.nodes

flags = json.loads(sys.argv[1])
try:
    print(json.dumps(spawnlaunch.launch(who, nproc=2, quiet=True, **flags)), flush=True)
except spawnlaunch.UsageError as error:
    print("refused:", error, flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "script.py").write_text(SCRIPT)
    return str(tmp_path / "script.py")


def printed(slurm: Slurm, script: str, *words: str, **flags: object) -> list[str]:
    """The lines of the script, started so."""
    command = [*words, sys.executable, script, json.dumps(flags)]
    env = environ(PYTHONPATH=str(ROOT))
    done = slurm.run(command, env=env, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_with_a_task_on_each_node_each_has_the_results_of_its_own(
    slurm: Slurm, script: str
) -> None:
    words = ("srun", "--nodes=2", "--ntasks-per-node=1", "--cpu-bind=none")
    lines = printed(slurm, script, *words)
    assert lines == ["[[0, 4, 2], [1, 4, 2]]", "[[2, 4, 2], [3, 4, 2]]"]
