"""Workers that write without pause, killed at random before readers of all kinds.

Every line that a worker has written comes whole and in its order, or its bytes are among those that
the launcher reports as dropped; only a launcher that is killed with SIGKILL may take some with it.
Each round is drawn from its seed: `-k "[17]"` plays one again.
"""

import os
import random
import re
import select
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.launching import WORKERS
from tests.support.patience import PATIENCE_S
from tests.support.processes import children
from tests.support.watching import Launch, launched

WITH_PREFIX = (sys.executable, "-m", "spawnlaunch")
LINE = re.compile(rb"\[(\d+)\] (?:(\d+) (x*) end)?.*")


class Round(NamedTuple):
    """What is drawn."""

    nproc: int
    lines: int
    reader: str  # "fast", "slow", "late" (begins when the victim is struck) or "never"
    victim: str  # "nobody", "worker" or "launcher"
    signum: signal.Signals
    failing: bool  # the last rank ends with status 3 by itself
    delay_s: float

    @property
    def may_lose(self) -> bool:
        """Whether the launcher has no chance to write what it has read."""
        return self.victim == "launcher" and self.signum == signal.SIGKILL


def draw(rng: random.Random) -> Round:
    """Workers whose output nobody reads wait for a reader, until somebody ends the job."""
    reader = rng.choice(("fast", "slow", "late", "never"))
    return Round(
        nproc=rng.randint(2, 4),
        lines=rng.choice((300, 3000, 20000)),
        reader=reader,
        victim=rng.choice(("worker", "launcher", *(["nobody"] if reader != "never" else []))),
        signum=rng.choice((signal.SIGTERM, signal.SIGKILL, signal.SIGINT)),
        failing=rng.random() < 0.3,
        delay_s=rng.uniform(0.1, 0.6),
    )


def read(drawn: Round, one: Launch) -> Iterator[bytes]:
    """What the reader gets, who meanwhile strikes the victim."""
    assert one.launcher.stdout
    fd, began, is_struck = one.launcher.stdout.fileno(), time.monotonic(), drawn.victim == "nobody"
    while (passed := time.monotonic() - began) < PATIENCE_S:
        is_time = passed > drawn.delay_s
        is_struck = is_struck or (is_time and strike(drawn, one))
        reads = drawn.reader in ("fast", "slow") or (drawn.reader == "late" and is_time)
        reads = reads or one.launcher.poll() is not None  # what is left in the pipe
        if not reads:
            time.sleep(0.01)
        elif select.select([fd], [], [], 0.01)[0]:
            chunk = os.read(fd, 1 << 12 if drawn.reader == "slow" else 1 << 16)
            if not chunk:
                return
            yield chunk
            time.sleep(0.0005 if drawn.reader == "slow" else 0)
    pytest.fail(f"the launch has not ended: {drawn}\n{one.stderr}")


def strike(drawn: Round, one: Launch) -> bool:
    """Send the signal; False where its victim has not been started yet."""
    below = [worker for guard in children(one.pid) for worker in children(guard)]
    if drawn.victim == "worker" and not below:
        return one.launcher.poll() is not None
    with suppress(ProcessLookupError):
        os.kill(one.pid if drawn.victim == "launcher" else below[-1], drawn.signum)
    return True


def written(rank: Path) -> int:
    """How many whole lines a rank had written when it ended."""
    data = rank.read_bytes() if rank.exists() else b""
    return struct.unpack("Q", data)[0] if len(data) == 8 else 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100))
def test_every_line_comes_whole_or_is_said_to_be_dropped(seed: int, tmp_path: Path) -> None:
    drawn = draw(random.Random(seed))
    fails = [f"{drawn.nproc - 1}:3"] if drawn.failing else []
    words = ("--nproc", drawn.nproc, "--grace", 1, WORKERS / "counting.py", tmp_path, drawn.lines)
    with launched(*words, *fails, directory=tmp_path, command=WITH_PREFIX) as one:
        output = b"".join(read(drawn, one))
        stderr = one.stderr
    *lines, torn = output.split(b"\n")
    is_dropped = "nobody read our stdout: dropped the last" in stderr
    assert not torn or drawn.may_lose or is_dropped, drawn
    seen, cut_short = [0] * drawn.nproc, set()
    for line in lines:
        found = LINE.fullmatch(line)
        assert found, (drawn, line)
        rank, number, filling = int(found[1]), found[2], found[3]
        assert rank not in cut_short, (drawn, line)
        if number is None:
            cut_short.add(rank)
        else:
            wanted = (seen[rank], seen[rank] * 7 % 200)
            assert (int(number), len(filling)) == wanted, (drawn, line)
            seen[rank] += 1
    assert not cut_short or drawn.victim != "nobody" or drawn.failing, drawn
    assert not is_dropped or drawn.may_lose or drawn.reader != "fast", (drawn, stderr)
    if not is_dropped and not drawn.may_lose:
        counts = [written(tmp_path / str(rank)) for rank in range(drawn.nproc)]
        # A worker may have died between writing a line and counting it.
        assert all(0 <= n - count <= 1 for n, count in zip(seen, counts, strict=True)), (
            drawn, seen, counts,
        )  # fmt: skip
