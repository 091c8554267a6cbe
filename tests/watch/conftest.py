"""A terminal whose screen tests can read."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.launching import clean_environ, run

Tmux = Callable[..., str]


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    """A server of its own: `tmux("capture-pane", "-p")`."""
    socket = str(tmp_path / "tmux")

    def call(*words: object) -> str:
        return run("tmux", "-S", socket, "-f", "/dev/null", *words, environ=clean_environ()).stdout

    yield call
    call("kill-server")
