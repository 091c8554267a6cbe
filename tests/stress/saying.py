"""Workers that write random bytes at random, through real launches: is every byte accounted for?

    python -m tests.stress.saying [--rounds N] [--seed S] [--only I] [--cases N]

Bars, escapes and halves of characters from up to four workers, under random flags of output: log
files have what was written byte for byte; what is shown has each stream's letters in their order
and no byte more than prefixes and ends of lines. With --cases so many are tried in this process,
by the functions that make lines of chunks alone.
"""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import NamedTuple

from tests.run import shown
from tests.support.launching import WORKERS, clean_environ
from tests.workers.babble import letters, pieces

ENOUGH_S = 100.0
SPECS = ("0", "1", "2", "3", "0:3", "0:1,1:2", "r1:3")
BABBLE = str(WORKERS / "babble.py")


class Round(NamedTuple):
    """What is drawn."""

    seed: str  # of what the workers write
    nproc: int
    redirects: str
    tee: str
    prefix: bool
    joined: bool  # our stderr goes where our stdout goes
    grace: str

    @property
    def flags(self) -> list[str]:
        """Without the directory of the log files."""
        flags = ["--quiet", "--bind", "none", "--nproc", str(self.nproc), "--grace", self.grace]
        flags += [] if self.prefix else ["--no-prefix"]
        flags += ["--tee", self.tee] if self.tee else []
        return [*flags, "--redirects", self.redirects] if self.redirects else flags

    def kept(self, rank: int) -> int:
        """The streams of a rank that files keep."""
        return _streams(self.redirects, rank) | _streams(self.tee, rank)

    def shown(self, rank: int) -> int:
        """The streams of a rank that come to ours."""
        return 3 & ~(_streams(self.redirects, rank) & ~_streams(self.tee, rank))


def draw(rng: random.Random, number: object) -> Round:
    nproc = rng.randint(1, 4)
    specs = [spec for spec in SPECS if "1:" not in spec or nproc > 1]
    return Round(
        seed=f"{number}",
        nproc=nproc,
        redirects=rng.choice(("", "", *specs)),
        tee=rng.choice(("", "", *specs)),
        prefix=rng.random() < 0.7,
        joined=rng.random() < 0.3,
        grace=rng.choice(("0", "1", "30")),
    )


def play(drawn: Round, directory: Path) -> str:
    """Play a round with a real launch; the result says what was wrong, "" for nothing."""
    kept = bool(drawn.redirects or drawn.tee)
    logs = ["--log-dir", f"{directory}/{{rank}}"] if kept else []
    command = [sys.executable, "-m", "spawnlaunch", *drawn.flags, *logs, BABBLE, drawn.seed]
    launcher = Popen(
        command, env=clean_environ(), stdout=PIPE, stderr=STDOUT if drawn.joined else PIPE
    )
    try:
        stdout, stderr = launcher.communicate(timeout=ENOUGH_S)
    finally:
        launcher.kill()
        launcher.wait()
    if launcher.returncode or b"spawnlaunch:" in stdout + (stderr or b""):
        return f"status {launcher.returncode}: {(stderr or stdout)[-2000:]!r}"
    said = {
        (rank, fd): b"".join(piece for to, piece, _ in pieces(drawn.seed, rank) if to == fd)
        for rank in range(drawn.nproc)
        for fd in (1, 2)
    }
    found = [_of_files(drawn, directory, said)]
    if drawn.joined:
        found.append(_of_screen(drawn, said, (1, 2), stdout))
    else:
        found += [_of_screen(drawn, said, (1,), stdout), _of_screen(drawn, said, (2,), stderr)]
    return "; ".join(filter(None, found))


Said = dict[tuple[int, int], bytes]  # by rank and descriptor


def _streams(spec: str, rank: int) -> int:
    """What --redirects and --tee say of a rank of a launch on one machine."""
    if spec in ("", "0", "1", "2", "3"):
        return int(spec or 0)
    by_rank = dict(entry.split(":") for entry in spec.split(","))
    return int(by_rank.get(f"r{rank}", by_rank.get(str(rank), "0")))


def _of_files(drawn: Round, directory: Path, said: Said) -> str:
    for (rank, fd), text in said.items():
        path = directory / str(rank) / ("stdout.log", "stderr.log")[fd - 1]
        kept = drawn.kept(rank) & fd
        if path.exists() != bool(kept):
            return f"{path} is there: {path.exists()}"
        if kept and path.read_bytes() != text:
            return f"{path} is not what rank {rank} wrote"
    return ""


def _of_screen(drawn: Round, said: Said, fds: tuple[int, ...], written: bytes) -> str:
    """What is wrong with what came on a stream of ours, "" for nothing."""
    shown_here = {
        (rank, fd): text
        for (rank, fd), text in said.items()
        if fd in fds and drawn.shown(rank) & fd
    }
    by_rank = [shown_here.get((rank, fds[0]), b"") for rank in range(drawn.nproc)]
    has_prefix = drawn.prefix and drawn.nproc > 1
    if len(fds) == 1 and has_prefix:
        prefixes = [f"[{rank}] ".encode() for rank in range(drawn.nproc)]
        own = [letters(rank, fds[0]) for rank in range(drawn.nproc)]
        wrong = shown.difference(by_rank, own, prefixes, written)
        if wrong:
            return wrong
    return _in_order(shown_here, written) or _amount(drawn, shown_here, written, has_prefix)


def _in_order(said: Said, written: bytes) -> str:
    """Each stream has letters of its own, so they can be told apart, whatever is between them."""
    for (rank, fd), text in said.items():
        own = letters(rank, fd)
        others = bytes(set(range(256)) - set(own))
        if written.translate(None, others) != text.translate(None, others):
            return f"other letters of rank {rank} on {fd}"
    return ""


def _amount(drawn: Round, said: Said, written: bytes, has_prefix: bool) -> str:
    wanted, got = Counter(b"".join(said.values())), Counter(written)
    for byte in b"\r\x1bK\xc3\xa4\0%":
        if wanted[byte] != got[byte]:
            return f"{wanted[byte]} times {bytes([byte])!r} became {got[byte]}"
    total = sum(wanted.values())
    writes = sum(len(pieces(drawn.seed, rank)) for rank in range(drawn.nproc))
    begun = wanted[ord("\n")] + wanted[ord("\r")] + writes + 2 * drawn.nproc
    most = total + begun * (1 + 4 * has_prefix)
    return "" if len(written) <= most else f"{total} bytes became {len(written)}"


def cases(seed: int, count: int) -> int:
    """Try so many without any process; the number of failures."""
    failures = 0
    for number in range(count):
        fault = shown.fault(shown.draw(random.Random(f"{seed}:{number}")))
        failures += bool(fault)
        if fault:
            print(f"case {number}: {fault}", flush=True)
    print(f"seed {seed}: {count} cases, {failures} failures")
    return failures


def rounds(seed: int, numbers: range | list[int]) -> int:
    """Play these rounds; the number of failures."""
    failures = 0
    for number in numbers:
        drawn = draw(random.Random(f"{seed}:{number}"), f"{seed}:{number}")
        with tempfile.TemporaryDirectory(prefix="stress-") as directory:
            fault = play(drawn, Path(directory))
        if fault:
            failures += 1
            print(f"round {number}: {drawn}\n  {fault[:1000]}", flush=True)
            print(f"  again: python -m tests.stress.saying --seed {seed} --only {number}")
    print(f"seed {seed}: {len(numbers)} rounds, {failures} failures")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.saying", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, default=None, help="play this round alone")
    parser.add_argument("--cases", type=int, default=0, help="try so many in this process instead")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    if options.cases:
        return min(cases(seed, options.cases), 1)
    numbers = range(options.rounds) if options.only is None else [options.only]
    return min(rounds(seed, numbers), 1)


if __name__ == "__main__":
    os.environ.pop("NO_COLOR", None)
    sys.exit(main())
