"""A launcher that is lost is started again, where somebody can: the launch goes on with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from tests.multinode.launchers import QUIET, SAY, Launchers
from tests.support.launching import clean_environ
from tests.support.matrix import mostly_full
from tests.support.processes import children, until

AGAIN = re.compile(r"waiting up to 60 s for .* to come back; start it there again: (.*)$", re.M)
STATIC = ("--rdzv-backend", "static")
# How a user starts two launchers: the flags of all, those of each, and the variables of each.
BY_HAND = {
    "an endpoint": (("--nnodes", 2, "--max-restarts", 1), ((), ()), ({}, {})),
    "node ranks": (
        ("--nnodes", 2, "--max-restarts", 1, *STATIC),
        (("--node-rank", 0), ("--node-rank", 1)),
        ({}, {}),
    ),
    "variables": (
        STATIC,
        ((), ()),
        tuple({"PET_NNODES": "2", "PET_MAX_RESTARTS": "1", "PET_NODE_RANK": rank} for rank in "01"),
    ),
}


def type_line(launchers: Launchers, name: str, line: str) -> None:
    """What a launcher has said to type, typed."""
    with (launchers.directory / f"{name}.again").open("wb") as out:
        launchers.processes[name] = subprocess.Popen(
            ["sh", "-c", f"exec env {line}"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=clean_environ(**QUIET),
        )


def kill(launchers: Launchers, name: str) -> None:
    launchers.processes[name].kill()
    launchers.processes.pop(name).wait()


WAYS = [(way, lost) for lost in ("ab", "ba") for way in BY_HAND]


@pytest.mark.parametrize(("way", "lost"), mostly_full([WAYS[0], WAYS[-1], *WAYS[1:-1]], 2))
def test_the_line_that_is_said_brings_a_lost_launcher_back(
    launchers: Launchers, way: str, lost: str
):
    """One of the two has the hub. Both have the node ranks that they had."""
    flags, own, variables = BY_HAND[way]
    for number, name in enumerate("ab"):
        launchers.start(name, *flags, *own[number], SAY, "wait-once", **variables[number])
    launchers.wait_for_workers(2)
    gone, other = lost
    (before,) = launchers.workers(gone)
    kill(launchers, gone)
    until(lambda: AGAIN.search(launchers.said(other)), "it says what to type")
    (line,) = AGAIN.findall(launchers.said(other))
    type_line(launchers, gone, line)
    assert launchers.statuses() == {"a": 0, "b": 0}, launchers.said(other)
    (launchers.directory / f"{gone}.again").rename(launchers.directory / f"{gone}.out")
    (after,) = launchers.workers(gone)
    assert (after["NODE_RANK"], after["WORLD_SIZE"]) == (before["NODE_RANK"], "2")
    assert after["TORCHELASTIC_RESTART_COUNT"] == "1"


@pytest.mark.full
def test_one_that_is_back_before_its_workers_are_dead_is_waited_for(launchers: Launchers):
    """A process on a GPU may take seconds to die: here its guard is stopped meanwhile."""
    flags = ("--nnodes", 2, "--max-restarts", 1, *STATIC, "--node-rank")
    for rank, name in enumerate("ab"):
        launchers.start(name, *flags, rank, SAY, "wait-once")
    launchers.wait_for_workers(2)
    (guard,) = children(launchers.processes["b"].pid)
    os.kill(guard, signal.SIGSTOP)
    try:
        kill(launchers, "b")
        launchers.start("b", *flags, 1, SAY, "wait-once")
        until(lambda: len(children(launchers.processes["b"].pid)) == 1, "it has a guard")
    finally:
        os.kill(guard, signal.SIGCONT)
    assert launchers.statuses() == {"a": 0, "b": 0}, launchers.said("b")
