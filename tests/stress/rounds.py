"""One round of the stress test: what is drawn, what must come of it, and what came.

Somebody (a worker, the launcher, the guard) gets a signal at some time. Whatever that does, in the
end nothing of the launch may be left, and the exit status must be the right one. Workers may be
forked from a warm image, and started anew when they fail; some do nothing but fail.
"""

import random
import signal
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.launching import FAMILY
from tests.support.processes import children, until
from tests.support.watching import Launch, launched

GRACE_S = 1.0
SLACK_S = 15.0  # for a machine that is busy with something else
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV, signal.SIGABRT)
DEADLY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
KINDS = ("plain", "stubborn", "session", "daemon", "naked")
SAVED = 85
MANY = 10**6  # restarts

# A Python that gets SIGINT before it has read its own startup files ends with 1.
TOO_EARLY = 1


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

    def __str__(self) -> str:
        family = "+".join(self.kinds) or "none"
        how = ", preloaded" if self.preload else ""
        return (
            f"{self.signum.name} to {self.victim} while {self.phase}, {self.nproc} workers that "
            f"{self.ending}{how}, {self.restarts} restarts, children: {family}, "
            f"after {self.delay_s * 1000:.0f} ms"
        )


def draw(rng: random.Random) -> Round:
    """Draw a round; one in ten has real DataLoaders, which take seconds to start."""
    phase = rng.choice(("starting", "running", "writing", "stopping", "restarting"))
    ending = {"writing": "write", "stopping": "stay", "restarting": "exit"}.get(
        phase, rng.choice(("sleep", "stay", "late"))
    )
    kinds = tuple(kind for kind in KINDS if rng.random() < 0.4)
    if rng.random() < 0.1 and phase != "restarting":
        kinds = (*kinds, "loader")
    return Round(
        nproc=rng.randint(1, 3),
        kinds=kinds,
        ending=ending,
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
        right = {128 + signal.SIGTERM}  # the worker ignores it, and we then end the launch so
    if drawn.ending == "late" and drawn.signum not in DEADLY:
        soft = drawn.victim != "worker" or drawn.signum == signal.SIGTERM
        right = {SAVED} if soft else right
        if drawn.phase == "starting" and soft:
            right |= {by_signal}  # not all of them could catch it yet
    if drawn.phase == "starting" and drawn.signum == signal.SIGINT:
        right |= {TOO_EARLY}
    return right | then_ended if drawn.victim == "worker" and drawn.restarts else right


def has_grace(drawn: Round) -> bool:
    """Whether the workers have time to end, which they have unless launcher or guard are killed."""
    return drawn.victim == "worker" or drawn.signum not in DEADLY


class Result(NamedTuple):
    """What came of a round."""

    status: int
    gone_after_s: float | None  # from the signal; None: not in time
    said: str


def play(drawn: Round, directory: Path) -> Result:
    """Play a round with real processes."""
    flags = ("--nproc", drawn.nproc, "--grace", GRACE_S, "--max-restarts", drawn.restarts)
    words = (*flags, *(("--preload", "json") if drawn.preload else ()), FAMILY, *drawn.kinds)
    ending = (drawn.ending, SAVED)
    with launched(*words, "--", *ending, directory=directory) as launch:
        _reach_phase(drawn, launch)
        time.sleep(drawn.delay_s)
        began = time.monotonic()
        hit = _strike(drawn, launch)
        if not hit or not _ends_by_itself(drawn):
            time.sleep(0.05)
            if launch.launcher.poll() is None:
                launch.send(signal.SIGTERM)
        status = launch.status(within_s=GRACE_S + SLACK_S)
        gone = launch.all_gone(within_s=SLACK_S)
        took_s = time.monotonic() - began
        return Result(status, took_s if gone else None, launch.stderr)


def _reach_phase(drawn: Round, launch: Launch) -> None:
    if drawn.phase == "starting":
        if drawn.victim != "launcher":
            until(lambda: bool(children(launch.pid)), "there is a guard")
        if drawn.victim == "worker":
            until(lambda: bool(_workers(drawn, launch)), "there is a worker")
        return
    if drawn.phase == "restarting":
        until(lambda: f"restart 2 of {MANY}" in launch.stderr, "there are restarts")
        return
    launch.read_until(drawn.nproc)
    if drawn.phase == "stopping":
        launch.send(signal.SIGTERM)
        until(lambda: "stopping the workers" in launch.stderr, "the launcher has understood")


def _workers(drawn: Round, launch: Launch) -> list[int]:
    """The pids of workers; the guard's first child is the image that they are forked from."""
    first = 1 if drawn.preload else 0
    return launch.workers[first : first + drawn.nproc]


def _strike(drawn: Round, launch: Launch) -> bool:
    """Send the signal; False where the victim was gone already."""
    victims = {
        "launcher": lambda: [launch.pid],
        "guard": lambda: children(launch.pid),
        "worker": lambda: _workers(drawn, launch),
    }[drawn.victim]()
    try:
        launch.send(drawn.signum, victims[-1])
    except (ProcessLookupError, IndexError):
        return False
    return True


def _ends_by_itself(drawn: Round) -> bool:
    if drawn.victim != "worker":
        return True
    return not drawn.restarts and drawn.signum != signal.SIGTERM
