"""Loader processes: they end with their rank, and share what they read."""

import signal
import uuid
from pathlib import Path

import numpy as np
import pytest

from tests.support.processes import nothing_left_behind, processes_with
from tests.train.ranks import complete, start, text_of, until

MIB = 1 << 20
pytestmark = pytest.mark.full
ENDS = text_of("ends")
FLAGS = (
    *("--device", "cpu", "--task", "ends.py:Ends", "--out", "here", "--log-every", "1"),
    *("--save-every", "0", "--batch-size", "4", "--loader-workers", "2"),
)
LONG = (*FLAGS, "--steps", "1000000")


@pytest.mark.parametrize(
    ("how", "number", "status"),
    [
        ("raises", None, 1),
        ("quits", None, 3),
        ("unread", None, 1),
        ("stuck", signal.SIGKILL, -signal.SIGKILL),
        ("goes on", signal.SIGTERM, 75),
    ],
)
def test_nothing_is_left_of_a_rank_that_has_ended(
    tmp_path: Path, how: str, number: signal.Signals | None, status: int
) -> None:
    (tmp_path / "ends.py").write_text(ENDS)
    mark = uuid.uuid4().hex
    with nothing_left_behind(mark):
        ranks = start(2, *LONG, cwd=tmp_path, HOW=how, MARK=mark)
        if how == "unread":
            for stream in [each for rank in ranks for each in (rank.stdout, rank.stderr)]:
                stream.close()
        if number is not None:
            until(ranks[0], "stuck" if how == "stuck" else "step")
            assert len(processes_with(mark)) >= 4  # two that read, their server, and its tracker
            for rank in ranks:
                rank.send_signal(number)
        assert [one.returncode for one in ranks if one.wait() is not None] == [status, status]


SHARES = text_of("shares")


@pytest.mark.parametrize(("kind", "world"), [("mapped", 2), ("rows", 1)])
def test_loader_processes_share_a_dataset_in_memory_or_in_a_file(
    tmp_path: Path, kind: str, world: int
) -> None:
    """80 MiB, all of which each process reads: no process has as much to itself."""
    (tmp_path / "shares.py").write_text(SHARES)
    numbers = np.random.default_rng(0).integers(0, 256, (82, MIB), dtype=np.uint8)
    numbers.tofile(tmp_path / "rows.bin")
    flags = ("--device", "cpu", "--task", "shares.py:Shares", "--kind", kind, "--save-every", "0")
    more = ("--epochs", "2", "--batch-size", "5", "--eval-every", "0", "--out", "here")
    complete(world, *flags, *more, "--loader-workers", "2", cwd=tmp_path)
    private = [int(file.read_text()) for file in tmp_path.glob("private-*")]
    # Of each rank itself, two for training and two for validation, of which one may read nothing.
    assert len(private) >= 4 * world
    assert sorted(private)[-world - 1] < 72 * 1024  # the last ones are the ranks
    seen = sorted(map(int, (tmp_path / "seen").read_text().split()))
    sums = numbers[1:-1].sum(axis=1, dtype=np.int64)
    if kind == "mapped":  # each is read twice, and in one validation
        assert seen[::3] == sorted(sums.tolist())
