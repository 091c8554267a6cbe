"""Many processes at once, and processes that start others as fast as they can."""

import signal
from pathlib import Path

import pytest

from tests.support.matrix import mostly_full
from tests.support.watching import KILLED, launched

# Each has children of a kind; the workers end when all have got so far.
CROWD = """
import os, sys, time
count, kind, here = int(sys.argv[1]), sys.argv[2], sys.argv[3]
for _ in range(count):
    if os.fork() == 0:
        if kind == "session":
            os.setsid()
        time.sleep(600)
        os._exit(0)
open(os.path.join(here, os.environ["RANK"]), "w").close()
while len(os.listdir(here)) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.1)
"""
# A chain: each process starts the next one, leaves it its place, and has ended before long.
BOMB = """
import os, sys, time
os.write(1, b"ready\\n")
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork():
                time.sleep(0.01)
                os._exit(0)
while os.environ["RANK"] == "1" or sys.argv[1] == "stay":
    time.sleep(600)
"""


@pytest.mark.full
@pytest.mark.parametrize("kind", ["plain", "session"])
def test_what_many_workers_leave_is_gone_when_they_end_at_once(kind: str, tmp_path: Path):
    script, here = tmp_path / "crowd.py", tmp_path / "here"
    script.write_text(CROWD)
    here.mkdir()
    words = ("--nproc", 64, "--bind", "none", script, 100, kind, here)
    with launched(*words, directory=tmp_path) as launch:
        assert launch.status(within_s=240) == 0
        assert "could not kill" not in launch.stderr


@pytest.mark.parametrize("ended_by", mostly_full(["guard", "launcher", "itself"]))
def test_chains_of_processes_end_with_the_launch(ended_by, tmp_path: Path):
    """Each link lives for 10 ms: there is always one that has just been started."""
    script = tmp_path / "bomb.py"
    script.write_text(BOMB)
    nproc, what = (1, "go") if ended_by == "itself" else (2, "stay")
    with launched("--nproc", nproc, script, what, directory=tmp_path) as launch:
        launch.read_until(nproc)
        if ended_by == "itself":
            assert launch.status() == 0
        else:
            launch.send(signal.SIGKILL, launch.guard if ended_by == "guard" else launch.pid)
            assert launch.status() == KILLED
