"""Of four ranks one is slow, one leaks, and one hangs: each view names the right one."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import ROOT, WORKERS, clean_environ, run
from tests.support.processes import children, until
from tests.support.required import require_programs
from tests.support.watching import launched
from tests.watch.conftest import Recorded
from tests.watch.ranks import looked_at, recorder_and_guard

require_programs("tmux", package="tmux")

Tmux = Callable[..., str]
RED = "\x1b[31m"  # as tmux tells of a cell
TROUBLES = {("slow", 1), ("grows", 2), ("stuck", 3)}


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    """A server of its own: `tmux("capture-pane", "-p")`."""
    socket = str(tmp_path / "tmux")

    def call(*words: object) -> str:
        return run("tmux", "-S", socket, "-f", "/dev/null", *words, environ=clean_environ()).stdout

    yield call
    call("kill-server")


def noted(record: Recorded) -> set[tuple[str, int]]:
    """The kinds of notes in a record, and whom they are about."""
    return {(line["note"], line["rank"]) for line in record.of_kind("note")}


def logged(out: Path, loss: float) -> list[dict[str, Any]]:
    """The lines of the loop's log with this loss."""
    return [line for line in Recorded(out).lines if line.get("loss") == loss]


@pytest.mark.full
def test_top_the_roll_call_and_the_report_name_the_right_ranks(tmux: Tmux, tmp_path: Path) -> None:
    hangs, record = tmp_path / "hangs", Recorded(tmp_path / "record")
    task = ("--task", f"{WORKERS / 'troubled.py'}:Troubled", "--hangs", hangs)
    steps = ("--steps", 100000, "--log-every", 5, "--batch-size", 4, "--out", tmp_path / "out")
    flags = ("--nproc", 4, "--grace", 1, "--hang-timeout", 20, "--record", record.directory)
    with launched(*flags, "--", *task, *steps, directory=tmp_path) as launch:
        # Longer than an answer may take, which is read in between.
        command = shlex.join([sys.executable, "-m", "spawnlaunch.top", "--every", "5"])
        shell = f"cd {ROOT}; {command}; echo ended with $?; sleep 3600"
        size = ("-x", 120, "-y", 80)
        tmux("new-session", "-d", "-s", "first", *size, f"exec sh -c {shlex.quote(shell)}")

        def screen() -> list[str]:
            return tmux("capture-pane", "-p", "-t", "first").splitlines()

        def shows() -> bool:
            """All ranks, whoever else has launched something."""
            rows = [line.split() for line in screen()]
            return all(any(str(pid) in row for row in rows) for pid in pids)

        def said_by_top(rank: int, words: str) -> bool:
            who = f"rank {rank}"
            return any(
                line.startswith("  ! ") and who in line and words in line for line in screen()
            )

        until(lambda: said_by_top(1, " ms for a step"), "top names the slow rank")
        pids = children(recorder_and_guard(launch.pid)[1])
        assert len(pids) == 4
        until(lambda: said_by_top(2, "grew by"), "top names the rank that leaks")
        until(lambda: noted(record) >= TROUBLES - {("stuck", 3)}, "the record has both")
        told = looked_at(dict.fromkeys(pids, 0))[0]["progress"]
        until(lambda: logged(tmp_path / "out", told["loss"]), "the loop has logged what it tells")
        (at, *_) = logged(tmp_path / "out", told["loss"])
        assert (told["steps"], told["rate"]) == (100000, at["samples_per_second"])
        assert at["step"] <= told["step"] < at["step"] + 1000
        assert told["compute_s"] > 0
        # Launches of other tests may come before this one, and fill the screen for a moment.
        until(lambda: RED in tmux("capture-pane", "-e", "-p", "-t", "first"), "it is red")
        plain = f"cd {ROOT}; NO_COLOR=1 exec {command}"
        tmux("new-session", "-d", "-s", "plain", "-x", 120, "-y", 80, plain)

        def without_colour() -> str:
            return tmux("capture-pane", "-e", "-p", "-t", "plain")

        until(lambda: "! rank 1 needs " in without_colour(), "another top names the slow rank")
        assert RED not in without_colour()
        slow_starts = len(record.of_kind("roll"))  # of a busy machine
        hangs.touch()
        until(lambda: said_by_top(3, "has made no step for"), "top names who hangs")
        until(lambda: "   rank 3 is in hang (troubled.py:" in launch.stderr, "the roll was called")
        until(lambda: noted(record) >= TROUBLES, "the record has all three")
        assert any(line.startswith("rank") for line in screen())
        tmux("send-keys", "-t", "first", "m")
        until(shows, "all ranks are in the table, sorted by memory")
        tmux("send-keys", "-t", "first", "h")
        until(lambda: any(line.split()[:2] == ["late%", "share"] for line in screen()), "columns")
        tmux("send-keys", "-t", "first", "h")
        tmux("resize-window", "-t", "first", "-x", 100, "-y", 70)
        until(lambda: len(screen()) == 70 and shows(), "it is drawn in the new size")
        assert all(len(line) <= 100 for line in screen())
        tmux("send-keys", "-t", "first", "q")
        until(lambda: any("ended with 0" in line for line in screen()), "it has ended")
        launch.launcher.terminate()
        launch.status()
    (first, second, *_) = record.of_kind("roll")[slow_starts]["words"]
    assert first.startswith("rank 3 is in hang (troubled.py:")
    assert second.startswith("ranks 0-2 are in backward ")
    html = record.page
    for kind, rank in TROUBLES:
        assert re.search(rf"<b>{kind}</b> after \d+ s: [^<]*rank {rank} ", html)
    for words in ("<b>roll call</b> after", "rank 3 is in hang (troubled.py:"):
        assert words in html
