"""Draw a case from its seed, judge it within bounds of time and memory, and tell the seed."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from tests.support.launching import clean_environ

PATIENCE_S = 600  # for what takes milliseconds
MEMORY_BYTES = 1 << 30  # in which the launcher takes a hundredth
ERROR_BYTES = 1 << 16
RANK_BYTES = 1 << 14  # of an explanation, for each worker


class Subject(NamedTuple):
    """What is tried: a random case is drawn, and judged by assertions."""

    draw: Callable[[Random], Any]
    judge: Callable[[Any], None]  # in this process
    judge_real: Callable[[Any], None] | None = None  # with a command


class Failure(NamedTuple):
    """A case that failed."""

    seed: int
    case: Any
    why: str


class TooLongError(BaseException):
    """Not an Exception, so that nobody on the way takes it for one of a file."""


def failures(subject: Subject, seed: int, count: int, real: bool = False) -> Iterator[Failure]:
    """Those of the cases with the seeds from `seed` to `seed + count - 1` that fail."""
    judge = subject.judge_real if real else subject.judge
    assert judge is not None, "there is no command for it"
    for number in range(seed, seed + count):
        case = subject.draw(Random(number))
        try:
            with bounded():
                judge(case)
        except (Exception, SystemExit, TooLongError):
            yield Failure(number, case, traceback.format_exc())


@contextmanager
def bounded() -> Iterator[None]:
    """What takes longer, or has more memory, fails."""

    def stop(_signum: int, _frame: FrameType | None) -> None:
        raise TooLongError(f"more than {PATIENCE_S} s")

    before = resource.getrlimit(resource.RLIMIT_DATA)
    handler = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + MEMORY_BYTES, before[1]))
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """The memory of this process that RLIMIT_DATA counts (VmData in proc_pid_status(5))."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmData"))


def explained(words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run the launcher with --explain: it explains, or says one error, and not much of either."""
    flags = [] if any(word.startswith("--explain") for word in words) else ["--explain"]
    command = [sys.executable, "-m", "spawnlaunch", *flags, *words]
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [os.fsencode(word) for word in command],
            env={os.fsencode(k): os.fsencode(v) for k, v in clean_environ(**environ).items()},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2 * PATIENCE_S,
            preexec_fn=_limit,
            check=False,
        )
        assert not os.listdir(directory), "it left files"
    said = done.stderr.decode()
    assert done.returncode in (0, 2), (done.returncode, said[-4000:])
    assert "Traceback" not in said
    assert len(done.stderr) <= ERROR_BYTES
    assert all(line.startswith("spawnlaunch: ") for line in said.splitlines()), said
    if done.returncode == 2:
        assert done.stdout == b""
        assert said.count("\n") == 1, said
        assert said.startswith("spawnlaunch: error: "), said
    ranks = done.stdout.count(b"\nrank ") + done.stdout.count(b'"local_rank"') + 1
    given = sum(map(len, (*words, *environ.values())))  # and shown, for each rank as well
    assert len(done.stdout) <= ERROR_BYTES + (RANK_BYTES + 8 * given) * ranks


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def plain_line(message: str, most: int = ERROR_BYTES) -> None:
    """Assert that it is one line, not too long, of which a terminal takes nothing for a command."""
    assert message
    assert len(message) <= most, len(message)
    assert message.isprintable(), message


def once_in(random: Random, n: int) -> bool:
    """True in one of `n` cases."""
    return random.randrange(n) == 0


def some(random: Random, values: Sequence[Any], most: int) -> list[Any]:
    """Up to so many of the values, in any order; one may come twice."""
    return [random.choice(values) for _ in range(random.randint(0, most))]
