"""What tests of several launchers share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.multinode.launchers import Launchers


@pytest.fixture
def launchers(tmp_path: Path) -> Iterator[Launchers]:
    """Launchers of one job, none of which is left."""
    found = Launchers(tmp_path)
    yield found
    for one in found.processes.values():
        if one.poll() is None:
            one.kill()
            one.wait()
