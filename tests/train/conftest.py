"""What several modules of these tests have."""

from pathlib import Path

import pytest


@pytest.fixture
def cwd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory with the tasks of the module, TASK, in a file task.py."""
    (tmp_path / "task.py").write_text(request.module.TASK)
    return tmp_path
