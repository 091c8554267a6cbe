"""Whatever processes workers start, all of them end with the launch, and nobody else does."""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.launching import LAUNCHER, WORKERS, clean_environ, run
from tests.support.matrix import mostly_full
from tests.support.watching import KILLED, launched

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a namespace")

ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
TRAITS = ("session", "twice", "naked", "closed", "renamed", "stubborn", "hidden", "adopts")
ENDINGS = (
    ("launcher", signal.SIGKILL),
    ("launcher", signal.SIGTERM),
    ("guard", signal.SIGKILL),
    ("guard", signal.SIGSEGV),
    ("worker", signal.SIGKILL),
    ("worker", signal.SIGTERM),
)


def node(below: st.SearchStrategy) -> st.SearchStrategy:
    """One that executes another program has nobody below."""
    drawn = {"traits": st.sets(st.sampled_from(TRAITS)).map(sorted), "below": below}
    return st.fixed_dictionaries(drawn).map(
        lambda one: {**one, "below": [] if "naked" in one["traits"] else one["below"]}
    )


NODES = st.recursive(
    st.just([]), lambda below: st.lists(node(below), min_size=1, max_size=3), max_leaves=4
)
CLANS = st.lists(NODES, min_size=1, max_size=3)  # one for each rank


def size(nodes: list[dict]) -> int:
    return sum(1 + size(each["below"]) for each in nodes)


def play(clans: list, victim: str, signum: int) -> dict:
    """A launch with such workers in a namespace of its own, and what was left there."""
    count = sum(map(size, clans)) + len(clans)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "told")
        workers = (str(WORKERS / "clan.py"), str(file), json.dumps(clans))
        flags = ("--quiet", "--grace", "0.5", "--nproc", str(len(clans)))
        oracle = (sys.executable, str(WORKERS / "oracle.py"), str(file), str(count))
        done = run(
            *ALONE,
            *oracle,
            victim,
            int(signum),
            *LAUNCHER,
            *flags,
            *workers,
            environ=clean_environ(TMPDIR=directory),
            timeout_s=200,
        )
    assert done.returncode == 0, done.stderr
    assert "internal error" not in done.stderr
    assert "could not kill" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def all_of_it(clans: list, ending: tuple[str, int]) -> None:
    assert play(clans, *ending) == {"left": [], "bystanders": 2}


generated = given(CLANS, st.sampled_from(ENDINGS))
test_nothing_is_left_and_nobody_else_is_killed = as_root(examples(4, 60)(generated(all_of_it)))


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


ENDS = [*mostly_full(["guard", "launcher"]), pytest.param("itself", marks=pytest.mark.nightly)]


@pytest.mark.parametrize("ended_by", ENDS)
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
