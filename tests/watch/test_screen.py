"""The live table in a terminal: tmux shows what a person would see."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.support.launching import ROOT, WORKERS
from tests.support.processes import until
from tests.support.required import require_programs
from tests.support.watching import launched
from tests.watch.conftest import Tmux

require_programs("tmux", package="tmux")


@pytest.mark.full
def test_the_table_is_drawn_resized_sorted_and_left(tmux: Tmux, tmp_path: Path) -> None:
    with launched("--nproc", 2, WORKERS / "busy.py", directory=tmp_path) as launch:
        launch.read_until(2)
        command = shlex.join([sys.executable, "-m", "spawnlaunch.top"])
        shell = f"cd {ROOT}; {command}; echo ended with $?; sleep 3600"
        tmux("new-session", "-d", "-x", 80, "-y", 60, f"exec sh -c {shlex.quote(shell)}")

        def screen() -> list[str]:
            return tmux("capture-pane", "-p").splitlines()

        def shows() -> bool:
            rows = [line.split() for line in screen()]
            return all(any(str(pid) in row for row in rows) for pid in launch.workers)

        until(shows, "both ranks are in the table")
        assert any(line.startswith("rank") for line in screen())
        assert all(len(line) <= 80 for line in screen())
        until(lambda: any("q quit" in line for line in screen()), "the keys are named")
        tmux("send-keys", "m")
        until(shows, "both ranks are in the table, sorted by memory")
        tmux("resize-window", "-x", 100, "-y", 50)
        until(lambda: len(screen()) == 50 and shows(), "it is drawn in the new size")
        tmux("send-keys", "q")
        until(lambda: any("ended with 0" in line for line in screen()), "it has ended")
        launch.launcher.terminate()
        launch.status()
