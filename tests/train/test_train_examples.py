"""The example trains on two ranks of the launcher, as its first lines say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.ranks import ROOT

EXAMPLES = ROOT / "train" / "examples"


def command_of(name: str, cwd: Path) -> str:
    """Run the command that the docstring of an example shows; what it printed."""
    (line,) = re.findall(r"^    python (-m spawnlaunch .*)$", (EXAMPLES / name).read_text(), re.M)
    words = line.replace("train/examples", str(EXAMPLES)).split()
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_the_plain_script_learns(tmp_path: Path) -> None:
    said = command_of("plain_ddp.py", tmp_path)
    found = [float(number) for number in re.findall(r"epoch \d: accuracy (0\.\d+)", said)]
    assert len(found) == 6
    assert found[-1] > 0.9
