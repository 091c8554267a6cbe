"""What tests of several launchers share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gang.launchers import Launchers
from tests.gang.nodes import STARTED


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for what launchers say; none of them is left."""
    yield tmp_path
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def launchers(tmp_path: Path) -> Iterator[Launchers]:
    """Launchers of one job, none of which is left."""
    found = Launchers(tmp_path)
    yield found
    for one in found.processes.values():
        if one.poll() is None:
            one.kill()
            one.wait()
