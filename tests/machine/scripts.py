"""What workers of the simulation do: scripts, generated or written, that processes play."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from spawnlaunch.base import machine
from spawnlaunch.base.signals import STACKS
from spawnlaunch.witness import stack_file
from spawnlaunch.workers.environment import STACK_FILES, WITNESS
from tests.machine.process import Process

MOST_S = 60.0  # that a script waits for another
COUNT = "TORCHELASTIC_RESTART_COUNT"
STACK = b"""Current thread 0x00007f0000000001 (most recent call first):
  File "/work/train.py", line 7 in wait
"""


class Say(NamedTuple):
    """Write so many numbered lines to a stream, each at least so long."""

    stream: int
    lines: int
    chars: int = 0


class Work(NamedTuple):
    seconds: float


class Start(NamedTuple):
    """Start a process that does something else: in the same group, in its own session, or away."""

    script: Script
    how: str  # "child", "session", "daemon", whose parent ends at once; or "naked": that, unmarked


class Follow(NamedTuple):
    """Go on as soon as the worker of that rank has been about to end for so long."""

    rank: int
    after_s: float


class End(NamedTuple):
    code: int  # -n: it dies of signal n


class Ignore(NamedTuple):
    signum: int


Step = Say | Work | Start | Follow | End | Ignore


class Script(NamedTuple):
    """What a process does, one after the other; and what it does when it is told to end.

    `told` None: it dies of the signal, as most do. It may show its stacks when it is asked to.
    """

    steps: Sequence[Step]
    told: Sequence[Step] | None = None
    shows_stacks: bool = False


class _Told(Exception):
    pass


class Player:
    """Plays a script in a process; remembers what it wrote."""

    def __init__(self, process: Process, name: str) -> None:
        self.process, self.name = process, name
        self.counts = {1: 0, 2: 0}
        self.said = [process.kernel.now]  # when it said something last
        self._is_told = False
        process.player = self

    def play(self, script: Script) -> int:
        machine.signal(signal.SIGPIPE, 1)  # ignored, as Python does
        try:
            if script.told is not None:
                machine.signal(signal.SIGTERM, self._told)
            environ, pid = self.process.environ, machine.getpid()
            # What a worker forks inherits that.
            if script.shows_stacks and environ.get(WITNESS) == str(pid) and STACK_FILES in environ:
                path = stack_file(environ[STACK_FILES], pid)
                with suppress(OSError):  # the launch is over
                    fd = machine.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                    machine.signal(STACKS, lambda *_: self._show(fd))
            return self._steps(script.steps)
        except _Told:
            machine.signal(signal.SIGTERM, signal.SIG_IGN)
            return self._steps(script.told or ())

    def _told(self, *_: Any) -> None:
        if not self._is_told:  # it may be told again before it ignores that
            self._is_told = True
            raise _Told

    def _show(self, fd: int) -> None:
        """As faulthandler does, which is registered for the signal (`witness.begin`)."""
        with suppress(OSError):
            machine.write(fd, STACK)

    def _steps(self, steps: Sequence[Step]) -> int:
        for step in steps:
            match step:
                case Say():
                    self._say(step)
                case Work(seconds):
                    machine.sleep(seconds)
                case Start():
                    self._start(step)
                case Follow(rank, after_s):
                    self._follow(rank)
                    machine.sleep(after_s)
                case Ignore(signum):
                    machine.signal(signum, signal.SIG_IGN)
                case End(code) if code < 0:
                    machine.kill(machine.getpid(), -code)
                case End(code):
                    return code
        return 0

    def _say(self, say: Say) -> None:
        for _ in range(say.lines):
            n = self.counts[say.stream]
            line = f"{self.name} {say.stream} {n}".ljust(say.chars, ".") + "\n"
            data = line.encode()
            try:
                while data:
                    data = data[machine.write(say.stream, data) :]
            except OSError:
                return  # nobody reads; SIGPIPE is ignored, as by Python
            self.counts[say.stream] += 1
            self.said.append(self.process.kernel.now)

    def _follow(self, rank: int) -> None:
        """Wait until another worker of the same start is about to end, if there is any."""
        kernel, count = self.process.kernel, self.process.environ[COUNT]

        def is_so() -> bool:
            return any(
                p.dying is not None and p.environ.get("RANK") == str(rank) and p.player
                and p.environ[COUNT] == count
                for node in kernel.nodes for p in node.all
            )  # fmt: skip

        kernel.wait(self.process, is_so, kernel.now + MOST_S, on=[kernel.deaths])

    def _start(self, start: Start) -> None:
        name = f"{self.name}'"

        def run() -> None:
            if start.how != "child":
                machine.setsid()
            if start.how == "naked":  # as execve(2) has it, with no environment
                self.process.kernel.current.environ = {}
            machine.exit_now(Player(self.process.kernel.current, name).play(start.script))

        def away() -> None:
            machine.fork(run)
            machine.exit_now(0)

        if start.how in ("daemon", "naked"):
            pid = machine.fork(away)
            machine.waitpid(pid, 0)
        else:
            machine.fork(run)


def talkative(random: Random) -> Script:
    """One that says something again and again, and then ends well."""
    pause_s = random.choice((0.6, 3.5))
    steps: list[Step] = []
    for _ in range(random.randrange(2, 6)):
        steps += [Say(random.choice((1, 2)), 1), Work(pause_s * (0.5 + random.random()))]
    return Script([*steps, End(0)])


def leaving(random: Random, code: int = 0) -> Script:
    """One that leaves something that takes its time."""
    left = Script([Work(40.0 * random.random()), End(0)])
    start = Start(left, random.choice(("child", "session", "daemon")))
    return Script([start, Work(random.choice((0.0, 1.0))), End(code)])


def lasting(script: Script) -> Script:
    """One that goes on for a while and then ends well."""
    steps = [step for step in script.steps if not isinstance(step, (End, Follow))]
    return script._replace(steps=[*steps, Work(10.0), End(0)])


def generated(random: Random, depth: int = 0) -> Script:
    """Any script, of which most end well."""
    steps: list[Step] = []
    for _ in range(random.randrange(1, 5)):
        choice = random.random()
        if choice < 0.4:
            stream, lines, chars = random.choice((1, 2)), random.randrange(1, 6), 0
            if random.random() < 0.4:
                chars = random.choice((300, 300, 300, 40_000) if not depth else (300,))
            steps.append(Say(stream, lines, chars))
        elif choice < 0.85 or depth:
            steps.append(Work(random.choice((0.0, 0.01, 0.5, 3.0, 20.0)) * random.random()))
        elif choice < 0.95:
            how = random.choice(("child", "session", "daemon"))
            steps.append(Start(generated(random, depth + 1), how))
        else:
            steps.append(Ignore(random.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))))
    if any(isinstance(step, Start) for step in steps):  # no line is torn that a pipe takes at once
        steps = [s._replace(chars=min(s.chars, 300)) if isinstance(s, Say) else s for s in steps]
    code = random.choice((0, 0, 0, 0, 0, 1, 7, -9, -11, -6, -15)) if not depth else 0
    steps.append(End(code))
    told: Sequence[Step] | None = None
    if random.random() < 0.4:
        told = [
            Work(random.choice((0.1, 2.0, 8.0)) * random.random()),
            End(random.choice((0, 0, 3))),
        ]
    return Script(steps, told)
