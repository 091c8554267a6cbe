"""Workers that write random bytes at random, through real launches: every byte is accounted for.

Bars, escapes and halves of characters from up to four workers, under random flags of output. Log
files have what was written byte for byte; what is shown has each stream's letters in their order
and no byte more than prefixes and ends of lines. Each round is drawn from its seed.
"""

import random
import sys
from collections import Counter
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NamedTuple

import pytest

from tests.output import shown
from tests.support.launching import WORKERS, run
from tests.workers.babble import letters, pieces

WITH_PREFIX = (sys.executable, "-m", "spawnlaunch", "--quiet", "--bind", "none")
QUICK, SEEDS = 1, 100

Said = dict[tuple[int, int], bytes]  # by rank and descriptor


class Round(NamedTuple):
    """What is drawn. By rank, 1 is its stdout, 2 its stderr and 3 both."""

    redirects: tuple[int, ...]
    tee: tuple[int, ...]
    letter: str  # that stands before a global rank, or none
    prefix: bool
    joined: bool  # our stderr goes where our stdout goes
    grace: str

    @property
    def is_kept(self) -> bool:
        return any((*self.redirects, *self.tee))

    def flags(self, logs: Path) -> list[str]:
        flags = ["--nproc", str(len(self.tee)), "--grace", self.grace]
        flags += [] if self.prefix else ["--prefix=never"]
        for flag, streams in (("--redirects", self.redirects), ("--tee", self.tee)):
            by_rank = ",".join(f"{self.letter}{rank}:{n}" for rank, n in enumerate(streams))
            one_for_all = len(set(streams)) == 1
            flags += [flag, str(streams[0]) if one_for_all else by_rank] if self.is_kept else []
        return [*flags, "--log-dir", f"{logs}/{{rank}}"] if self.is_kept else flags


def draw(rng: random.Random) -> Round:
    nproc, is_kept = rng.randint(1, 4), rng.random() < 0.8
    streams = [0, 1, 2, 3] if is_kept else [0]
    redirects, tee = (
        tuple(rng.choice(streams) for _ in range(nproc)) if rng.random() < 0.5
        else (rng.choice(streams),) * nproc
        for _ in range(2)
    )  # fmt: skip
    return Round(
        redirects, tee, letter=rng.choice(("", "r")), prefix=rng.random() < 0.7,
        joined=rng.random() < 0.3, grace=rng.choice(("0", "1", "30")),
    )  # fmt: skip


@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=[] if n < QUICK else pytest.mark.nightly) for n in range(SEEDS)],
)
def test_random_bytes_of_several_workers_are_accounted_for(seed: int, tmp_path: Path) -> None:
    drawn = draw(random.Random(seed))
    words = (*drawn.flags(tmp_path), WORKERS / "babble.py", seed)
    done = run(*WITH_PREFIX, *words, text=False, stderr=STDOUT if drawn.joined else PIPE)
    stdout, stderr = done.stdout, done.stderr or b""
    assert (done.returncode, b"spawnlaunch:" in stdout + stderr) == (0, False), stderr[-2000:]
    all_said: Said = {
        (rank, fd): b"".join(piece for to, piece, _ in pieces(f"{seed}", rank) if to == fd)
        for rank in range(len(drawn.tee))
        for fd in (1, 2)
    }
    on_screen: Said = {}
    for (rank, fd), text in all_said.items():
        path = tmp_path / f"{rank}" / ("stdout.log", "stderr.log")[fd - 1]
        is_kept = bool((drawn.redirects[rank] | drawn.tee[rank]) & fd)
        assert (path.read_bytes() if path.exists() else None) == (text if is_kept else None), drawn
        if not drawn.redirects[rank] & ~drawn.tee[rank] & fd:
            on_screen[rank, fd] = text
    for fds, written in [((1, 2), stdout)] if drawn.joined else [((1,), stdout), ((2,), stderr)]:
        here = {where: text for where, text in on_screen.items() if where[1] in fds}
        check_screen(drawn, here, fds, written, seed)


def check_screen(drawn: Round, said: Said, fds: tuple[int, ...], written: bytes, seed: int) -> None:
    """What came on a stream of ours has all that was said, in order, and little else."""
    ranks = range(len(drawn.tee))
    has_prefix = drawn.prefix and len(ranks) > 1
    if len(fds) == 1 and has_prefix:
        by_rank = [said.get((rank, fds[0]), b"") for rank in ranks]
        own = [letters(rank, fds[0]) for rank in ranks]
        prefixes = [f"[{rank}] ".encode() for rank in ranks]
        assert not shown.difference(by_rank, own, prefixes, written), drawn
    for (rank, fd), text in said.items():  # each stream has letters of its own
        others = bytes(set(range(256)) - set(letters(rank, fd)))
        assert written.translate(None, others) == text.translate(None, others), drawn
    wanted, got = Counter(b"".join(said.values())), Counter(written)
    for byte in b"\r\x1bK\xc3\xa4\0%":
        assert wanted[byte] == got[byte], (drawn, bytes([byte]))
    writes = sum(len(pieces(f"{seed}", rank)) for rank in ranks)
    begun = wanted[ord("\n")] + wanted[ord("\r")] + writes + 2 * len(ranks)
    assert len(written) <= sum(wanted.values()) + begun * (1 + 4 * has_prefix), drawn
