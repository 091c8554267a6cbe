"""Whoever is held up, all workers end that are to: within their grace, and ten seconds.

Somebody tells the launcher to end, or kills it, while another thread of it takes its signals, or
one process of the launch is stopped. What is one row of HELD is one more of what may go wrong.
"""

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.support.launching import FAMILY, LAUNCHER, ROOT, THREAD
from tests.support.patience import PATIENCE_S
from tests.support.processes import children, everybody, state, until
from tests.support.watching import Launch, launched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a guard on Linux only")

# sitecustomize.py: the guard's loop does not come back, as from a file system that does not answer.
HELD_GUARD = """
import os, time
def begun():
    from spawnlaunch.base import events
    turn = events.Loop.turn
    def held(self, *args):
        while os.path.exists("hold"):
            open("held", "w").close()
            time.sleep(1e6)
        turn(self, *args)
    events.Loop.turn = held
os.register_at_fork(after_in_child=begun)
"""
GRACE_S, ENDINGS = 1.0, ("stay", "sleep")  # SIGTERM is ignored, or not


# Writes for ever, and ends when it is told to, or not.
FLOOD = """
import signal, sys
if sys.argv[-1] == "stay": signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True: print("x" * 99, flush=True)
"""
NOBODY = 65534
OTHERS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")  # their files are closed


class Held(NamedTuple):
    """Who is held up, and how."""

    hold: Callable[[Launch, Path], int | None]  # the result is to be continued as it is told
    words: tuple[object, ...] = ()
    site: str = ""  # sitecustomize.py
    program: tuple[object, ...] = (FAMILY, "--")
    command: tuple[str, ...] = ()
    preexec: Callable[[], None] | None = None


def stop(find: Callable[[Launch], int]) -> Callable[[Launch, Path], int]:
    def hold(one: Launch, _: Path) -> int:
        pid = find(one)
        one.send(signal.SIGSTOP, pid)
        return pid

    return hold


def hold_guard(_: Launch, directory: Path) -> None:
    (directory / "hold").touch()
    until((directory / "held").exists, "it does not come back")


def stop_image(one: Launch, _: Path) -> None:
    """And a worker fails: the image is asked for others."""
    image, worker, *_ = one.workers
    one.send(signal.SIGSTOP, image)
    one.send(signal.SIGKILL, worker)


def pause(_: Launch, __: Path) -> None:
    time.sleep(1.0)  # until nobody can write more


HELD = {
    "another thread takes signals": Held(lambda *_: None, site=THREAD),
    "the launcher is stopped": Held(stop(lambda one: one.pid)),
    "the guard is stopped": Held(stop(lambda one: one.guard)),
    "the guard's loop does not come back": Held(hold_guard, site=HELD_GUARD),
    "the image is stopped": Held(stop_image, ("--preload", "json", "--max-restarts", 9)),
    "the recorder is stopped": Held(stop(lambda one: children(one.pid)[0]), ("--record", ".")),
    "another user's reader pauses": Held(
        pause,
        program=("--no-python", sys.executable, "-c", FLOOD),
        command=OTHERS,
        preexec=lambda: os.fchown(1, NOBODY, NOBODY),
    ),
}
TOLD = ((signal.SIGTERM,), (signal.SIGTERM, signal.SIGHUP), (signal.SIGINT,), (signal.SIGKILL,))


def check(seed: int, at: Path, within_s: float) -> None:
    """Of each seed another row, another signal, workers that heed it or not, and another time."""
    random, name = Random(seed), [*HELD][seed % len(HELD)]
    held, told = HELD[name], random.choice(TOLD)
    (at / "sitecustomize.py").write_text(held.site)
    words = ("--nproc", 2, "--grace", GRACE_S, *held.words, *held.program, random.choice(ENDINGS))
    environ = {"PYTHONPATH": f"{at}:{ROOT}"}
    command = (*held.command, "env", "-C", str(at), *LAUNCHER)
    with launched(
        *words, directory=at, environ=environ, command=command, preexec=held.preexec
    ) as one:
        one.read_until(2)
        workers = [pid for child in children(one.pid) for pid in everybody(child)[1:]]
        assert len(workers) > 1
        stopped = held.hold(one, at)
        time.sleep(random.random())
        for signum in told:
            one.send(signum)
        if stopped == one.pid and signal.SIGKILL not in told:
            one.send(signal.SIGCONT)  # as scancel does
        what = f"seed {seed}, {name}, {told}"
        until(lambda: not any(map(state, workers)), f"the workers have ended: {what}", within_s)
        until(lambda: select.select([one.held], [], [], 0)[0], f"all have: {what}")
        if signal.SIGKILL in told and held.site == HELD_GUARD:  # both were killed
            shutil.rmtree(next((at / "tmp").glob("spawnlaunch-*")))


MANY = range(len(HELD), 300 + len(HELD))
PARTS = [
    pytest.param(range(len(HELD)), PATIENCE_S, marks=pytest.mark.full),
    *(pytest.param(MANY[i::6], GRACE_S + 10, marks=pytest.mark.nightly) for i in range(6)),
]


@pytest.mark.parametrize(("seeds", "within_s"), PARTS, ids=str)
def test_all_workers_end_whoever_is_held_up(seeds: range, within_s: float, tmp_path: Path):
    for seed in seeds:
        place = tmp_path / str(seed)
        place.mkdir()
        check(seed, place, within_s)
