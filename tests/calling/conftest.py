"""What every test of `spawnlaunch.launch` wants: no launcher's variables in this process."""

import os

import pytest

from tests.support.launching import FOREIGN


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for launches that are commands: see `clean_environ`."""
    for name in os.environ:
        if name.startswith(FOREIGN):
            monkeypatch.delenv(name)
