"""Standard streams that are closed, or cannot be written to, when the launcher starts."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.support.launching import SLURM_TASK, clean_environ
from tests.support.patience import PATIENCE_S

CLOSED = [tuple(chosen) for chosen in product((False, True), repeat=3)]  # stdin, stdout, stderr
WAYS = (("--nproc", "2"), ("--nproc", "1"), ("--nproc", "2", "--preload", "json"), ("task",))
ALL, OUT_AND_IN = (True, True, True), (True, True, False)
QUICK = {
    WAYS[0]: ((False, False, True), OUT_AND_IN, ALL), WAYS[1]: (ALL,), WAYS[2]: (ALL,),
    WAYS[3]: (OUT_AND_IN,),
}  # fmt: skip
LAUNCHER = (sys.executable, "-m", "spawnlaunch", "--quiet", "--prefix=never")
# What is no ASCII: its bytes, read as the numbers of signals, would end the launch.
SPEAK = """
import os, sys
sys.stdin.read()
print("Ärger von", os.environ["RANK"])
print("Ärger mit", os.environ["RANK"], file=sys.stderr)
"""


def name(closed: tuple[bool, ...]) -> str:
    return "".join(f"{fd}" for fd in range(3) if closed[fd]) or "none"


CASES = [
    pytest.param(way, closed, id=f"{' '.join(way)}, {name(closed)}", marks=marks)
    for way, closed in product(WAYS, CLOSED)
    for marks in [() if closed in QUICK.get(way, ()) else pytest.mark.full]
]


@pytest.mark.parametrize(("way", "closed"), CASES)
def test_closed_streams_lose_what_goes_there_and_nothing_else(
    way: tuple[str, ...], closed: tuple[bool, ...], tmp_path: Path
):
    script, out, err = tmp_path / "speak.py", tmp_path / "out", tmp_path / "err"
    script.write_text(SPEAK)
    flags, ranks, environ = list(way), range(int(way[1:2] == ("2",)) + 1), clean_environ()
    if way == ("task",):
        flags, ranks, environ = [], range(2, 3), clean_environ(**SLURM_TASK)
    shut = " ".join(f"{fd}>&-" for fd in range(3) if closed[fd])
    shell = ("sh", "-c", f'exec "$@" </dev/null >{out} 2>{err} {shut}', "sh")
    words = (*shell, *LAUNCHER, *flags, script)
    done = subprocess.run(words, env=environ, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, err.read_text()
    stdout, stderr = sorted(out.read_text().splitlines()), sorted(err.read_text().splitlines())
    assert stdout == ([] if closed[1] else [f"Ärger von {rank}" for rank in ranks])
    told = any(" stdout is closed: what" in line for line in stderr)
    assert told == (closed[1] and not closed[2])
    words = [line for line in stderr if not line.startswith("spawnlaunch: ")]
    assert words == ([] if closed[2] else [f"Ärger mit {rank}" for rank in ranks])
