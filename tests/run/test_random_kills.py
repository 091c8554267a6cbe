"""Somebody (a worker, the launcher, the guard) gets a signal at a random time.

Whatever that does, nothing of the launch is left, and the exit status is the right one. Workers
may be forked from a warm image, and started anew when they fail; some do nothing but fail. Each
round is drawn from its seed: `-k "[17]"` plays one again.
"""

import random
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.launching import FAMILY
from tests.support.processes import children, until
from tests.support.watching import Launch, launched

GRACE_S = 1.0
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV, signal.SIGABRT)
DEADLY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
KINDS = ("plain", "stubborn", "session", "daemon", "naked")
SAVED = 85
MANY = 10**6  # restarts
TOO_EARLY = 1  # the status of a Python that gets SIGINT before it has read its own startup files
ENDINGS = {"writing": "write", "stopping": "stay", "restarting": "exit"}  # others are drawn


class Round(NamedTuple):
    """What is drawn."""

    nproc: int
    kinds: tuple[str, ...]  # of children that each worker has
    ending: str  # what workers do on SIGTERM, as family.py has it
    victim: str  # "worker", "launcher" or "guard"
    signum: signal.Signals
    phase: str  # "starting", "running", "writing", "stopping" or "restarting"
    delay_s: float
    preload: bool
    restarts: int


def draw(rng: random.Random) -> Round:
    """Draw a round; one in ten has real DataLoaders, which take seconds to start."""
    phase = rng.choice(("starting", "running", "writing", "stopping", "restarting"))
    kinds = tuple(kind for kind in KINDS if rng.random() < 0.4)
    has_loader = rng.random() < 0.1 and phase != "restarting"
    return Round(
        nproc=rng.randint(1, 3),
        kinds=(*kinds, "loader") if has_loader else kinds,
        ending=ENDINGS.get(phase) or rng.choice(("sleep", "stay", "late")),
        victim=rng.choice(("worker", "launcher", "guard")),
        signum=rng.choice(SIGNALS),
        phase=phase,
        delay_s=rng.uniform(0.0, 0.15 if phase in ("starting", "restarting") else 0.03),
        preload=rng.random() < 0.3,
        restarts=MANY if phase == "restarting" else rng.choice((0, 0, 3)),
    )


def expected(drawn: Round) -> set[int]:
    """The exit statuses that are right."""
    by_signal = 128 + drawn.signum
    then_ended = {128 + signal.SIGTERM}  # those that were started anew
    then_ended |= {SAVED} if drawn.ending == "late" else set()
    then_ended |= {TOO_EARLY} if drawn.signum == signal.SIGINT else set()
    if drawn.victim != "worker" and drawn.signum in DEADLY:
        return {by_signal}
    if drawn.phase == "stopping":  # by SIGTERM, which was there first
        return {128 + signal.SIGTERM}
    if drawn.phase == "restarting":  # a failure, unless the signal came between two of them
        return {SAVED, by_signal} | (then_ended if drawn.victim == "worker" else set())
    right = {by_signal}
    if drawn.victim == "worker" and drawn.signum == signal.SIGTERM and drawn.ending == "stay":
        right = {128 + signal.SIGTERM}  # the worker ignores it, and the launch is then ended so
    if drawn.ending == "late" and drawn.signum not in DEADLY:
        soft = drawn.victim != "worker" or drawn.signum == signal.SIGTERM
        right = {SAVED} if soft else right
        if drawn.phase == "starting" and soft:
            right |= {by_signal}  # not all of them could catch it yet
    if drawn.phase == "starting" and drawn.signum == signal.SIGINT:
        right |= {TOO_EARLY}
    return right | then_ended if drawn.victim == "worker" and drawn.restarts else right


def reach_phase(drawn: Round, one: Launch) -> None:
    """Wait until the launch has come to the phase in which somebody is to be struck."""
    if drawn.phase == "restarting":
        until(lambda: f"restart 2 of {MANY}" in one.stderr, "there are restarts")
    elif drawn.phase != "starting":
        one.read_until(drawn.nproc)
        if drawn.phase == "stopping":
            one.send(signal.SIGTERM)
            until(lambda: "stopping the workers" in one.stderr, "the launcher has understood")
    elif drawn.victim != "launcher":
        until(lambda: bool(victims(drawn, one)), "there is a victim")


def victims(drawn: Round, one: Launch) -> list[int]:
    """Who may be struck; the guard's first child is the image that workers are forked from."""
    if drawn.victim == "launcher":
        return [one.pid]
    if drawn.victim == "guard":
        return children(one.pid)
    return one.workers[drawn.preload :][: drawn.nproc]


def strike(drawn: Round, one: Launch) -> bool:
    """Send the signal; False where the victim was gone already."""
    try:
        one.send(drawn.signum, victims(drawn, one)[-1])
    except (ProcessLookupError, IndexError):
        return False
    return True


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(300))
def test_a_random_kill_leaves_nothing_and_gives_the_right_status(seed: int, tmp_path: Path) -> None:
    drawn = draw(random.Random(seed))
    words = ("--nproc", drawn.nproc, "--grace", GRACE_S, "--max-restarts", drawn.restarts)
    words += ("--preload", "json") if drawn.preload else ()
    family = (FAMILY, *drawn.kinds, "--", drawn.ending, SAVED)
    with launched(*words, *family, directory=tmp_path) as one:
        reach_phase(drawn, one)
        time.sleep(drawn.delay_s)
        ends_by_itself = drawn.victim != "worker"
        ends_by_itself |= not drawn.restarts and drawn.signum != signal.SIGTERM
        if not strike(drawn, one) or not ends_by_itself:
            time.sleep(0.05)
            if one.launcher.poll() is None:
                one.send(signal.SIGTERM)
        assert one.status() in expected(drawn), (drawn, one.stderr)
        assert "internal error" not in one.stderr, drawn
