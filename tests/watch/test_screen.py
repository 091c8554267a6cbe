"""The live table in a terminal: tmux shows what a person would see."""

import os
import shlex
import signal
import sys
import termios
from pathlib import Path

import pytest

from tests.support.launching import ROOT, WORKERS, start
from tests.support.patience import PATIENCE_S
from tests.support.processes import until
from tests.support.required import require_programs
from tests.support.watching import launched
from tests.watch.conftest import Tmux

require_programs("tmux", package="tmux")


def test_a_top_that_is_told_to_end_leaves_the_terminal_as_it_was() -> None:
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    top = start(sys.executable, "-m", "spawnlaunch.top", stdin=theirs, stdout=theirs, stderr=theirs)
    drawn = b""
    while b"q quit" not in drawn:
        drawn += os.read(ours, 1 << 16)
    assert termios.tcgetattr(theirs) != before
    top.terminate()
    assert top.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


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
