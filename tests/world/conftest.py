"""What tests under a real Slurm share."""

from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm
from tests.world.asking import Asker


@pytest.fixture
def ask(slurm: Slurm, tmp_path: Path) -> Asker:
    return Asker(slurm, tmp_path)
