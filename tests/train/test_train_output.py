"""What a run prints, and where it writes."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.ranks import ENTRY, SMALL, complete, environment, run

TINY = (*SMALL, "--context", "16", "--batch-size", "4", "--steps", "30", "--log-every", "10")


@pytest.mark.full
def test_only_rank_0_prints_and_in_a_log_it_prints_lines(tmp_path: Path) -> None:
    ranks = complete(2, *TINY, cwd=tmp_path)
    assert ranks[1][1:] == ("", "")
    assert "\r" not in ranks[0].out
    assert re.findall(r"^step (\d\d)/30  loss \d\.\d{3} bits per byte", ranks[0].out, re.M) == [
        "10",
        "20",
        "30",
    ]
    assert re.search(r"sha256 [0-9a-f]{12}", ranks[0].out)
    assert re.fullmatch(r"validation loss \d\.\d{3} bits per byte", ranks[0].out.splitlines()[-1])
    (run_directory,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"language-\d{8}-\d{6}", run_directory.name)
    assert f"writing to runs/{run_directory.name}\n" in ranks[0].out


def on_a_terminal(command: list[str], cwd: Path, **extra: str) -> str:
    """Everything a terminal got from a command that ended well."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, cwd=cwd, env=environment(0, 0, 0, **extra), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    got = bytearray()
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux says that nobody has the terminal open any more
            break
        if not piece:
            break
        got += piece
    os.close(ours)
    assert process.wait() == 0, got
    return got.decode()


@pytest.mark.full
def test_on_a_terminal_tqdm_shows_loss_speed_and_time_left(tmp_path: Path) -> None:
    got = on_a_terminal([sys.executable, str(ENTRY), *TINY], tmp_path, COLUMNS="150")
    assert re.search(
        r"\| 30/30 \[\d\d:\d\d<\d\d:\d\d, loss \d\.\d{3} bits per byte .* bytes/s\]", got
    )
    assert not re.search(r"^step 10/30", got, re.M)
    assert re.search(r"validation loss \d\.\d{3} bits per byte\r\n$", got)


@pytest.mark.full
def test_without_tqdm_a_terminal_gets_the_lines_of_a_log(tmp_path: Path) -> None:
    program = tmp_path / "without.py"
    program.write_text(
        "import importlib.util, runpy, sys\n"
        "from importlib.machinery import PathFinder\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        return None if name == 'tqdm' else PathFinder.find_spec(name, path, target)\n"
        "sys.meta_path = [one for one in sys.meta_path if one is not PathFinder] + [Without()]\n"
        f"sys.argv[0] = {str(ENTRY)!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    got = on_a_terminal([sys.executable, str(program), *TINY], tmp_path)
    assert re.findall(r"^step (\d\d)/30  loss ", got, re.M) == ["10", "20", "30"]
    assert "\x1b[K" not in got


@pytest.mark.full
def test_a_bar_reaches_the_terminal_of_a_launcher_through_its_pipe(tmp_path: Path) -> None:
    first, other = complete(2, *TINY, cwd=tmp_path, SPAWNLAUNCH_TERMINAL_COLUMNS="110")
    bars = re.findall(r"^ *\d+% \|.*", first.out, re.M)
    assert "| 30/30 [" in bars[-1]
    assert {len(bar) for bar in bars if "bytes/s" in bar} <= set(range(80, 111))
    assert not re.search(r"^step 10/30", first.out, re.M)
    assert other.out == ""


@pytest.mark.full
@pytest.mark.parametrize("out", ["file", "file/below"])
def test_an_output_directory_that_cannot_be_is_refused(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("not a directory")
    (ended,) = run(0, *TINY, "--out", out, cwd=tmp_path)
    assert ended.status == 2
    assert ended.err.startswith("train: error: ")
    assert ended.err.endswith("; use another --out\n")
    assert ended.err.count("\n") == 1
