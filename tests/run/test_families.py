"""Whatever processes workers start, all of them end with the launch, and nobody else does."""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.launching import LAUNCHER, WORKERS, clean_environ, run

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs root, to make a namespace"
)

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


FEW = settings(max_examples=4, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=100, suppress_health_check=list(HealthCheck))
test_nothing_is_left_and_nobody_else_is_killed = FEW(
    given(CLANS, st.sampled_from(ENDINGS))(all_of_it)
)
test_the_same_of_many = pytest.mark.full(MANY(given(CLANS, st.sampled_from(ENDINGS))(all_of_it)))
