"""Start real benches, and read what they wrote."""

import os
import sys
from pathlib import Path

import pytest

from spawnlaunch.bench import results, stats
from tests.support.launching import clean_environ, run

BENCH = (sys.executable, "-m", "spawnlaunch.bench")
TWO_RANKS = (*BENCH, "--nproc", "2")
# Arms that differ where there is one rank, which is started in half the time.
ONE_RANK = (*BENCH, "--nproc", "1", "--arms", "auto", "--arm", "one=--threads 1")
SHORT = ("--seconds", "0.05", "--warm-up", "0")

needs_two_cpus = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs: on one, no binding differs"
)


def bench(file: Path, *words: object, **environ: str) -> tuple[results.Result, str]:
    """The result that a bench of two ranks wrote, and what it printed."""
    done = run(*TWO_RANKS, "--json", file, *words, environ=clean_environ(**environ))
    assert done.returncode == 0, done.stderr
    return results.read(str(file)), done.stdout


def placed(rank: str, size: str, port: str) -> dict[str, str]:
    """The variables of a rank of one node."""
    its = clean_environ(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=size)
    return {**its, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def compared(found: results.Result, arm: str, against: str) -> stats.Comparison:
    """The comparison of two arms, of a result with one workload."""
    rows = results.headline(results.rows(found))
    (row,) = (row for row in rows if (row.arm, row.against) == (arm, against))
    return row.comparison


def counted(file: Path) -> int:
    """How many samples a file has."""
    lines = file.read_text().splitlines() if file.exists() else []
    return sum('"sample"' in line for line in lines)
