"""What tests under a real Slurm share."""

from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm
from tests.slurm.asking import Asker


@pytest.fixture
def ask(slurm: Slurm, tmp_path: Path) -> Asker:
    """Runs commands on the cluster, and gives what their workers report."""
    return Asker(slurm, tmp_path)
