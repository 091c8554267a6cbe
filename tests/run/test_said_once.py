"""What all tasks of a step come to is said once, and what one node comes to is said by it."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm
from tests.support.launching import (
    HOST,
    LAUNCHER,
    REPORTER,
    clean_environ,
    open_mpi,
    run,
)
from tests.support.required import require_programs

ERROR = "spawnlaunch: error: "


def mpirun(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    require_programs("mpirun", package="openmpi-bin")
    return run("mpirun", "--oversubscribe", *words, environ=clean_environ(**open_mpi(directory)))


def errors(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if ERROR in line]


OURS = shlex.join(LAUNCHER)
BAD_RANK = f"[ $SLURM_PROCID = 1 ] && SLURM_PROCID=x; {OURS} {REPORTER}"
ON_NODE_1 = f'[ "$SLURMD_NODENAME" = node1 ] && x=no.py || x={REPORTER}; {OURS} $x'
OF_NODE_1 = f"[345]: {ERROR}node1: .*no.py"
NODES = "-w node[0-1] -n6 --ntasks-per-node=3"


@pytest.mark.full  # the silent ones wait for ten seconds
@pytest.mark.parametrize(
    ("step", "command", "count", "said"),
    [
        ("-N2 -n6", f"{OURS} --no-such-flag {REPORTER}", 1, f"0: {ERROR}"),
        ("-N2 -n6 --kill-on-bad-exit=1", f"{OURS} --no-such-flag", 1, ERROR),
        *((f"{NODES} --kill-on-bad-exit={n}", ON_NODE_1, 1, OF_NODE_1) for n in (0, 1)),
        ("-N1 -n3 --kill-on-bad-exit=0", f"{OURS} no-$SLURM_LOCALID.py", 3, r"no-\d.py"),
        ("-N1 -n3 --kill-on-bad-exit=0", BAD_RANK, 1, "SLURM_PROCID='x' is not a whole number"),
        ("-N2 -n4", f"{sys.executable} -m spawnlaunch.bench --arms north", 1, "error: "),
    ],
)  # fmt: skip
def test_what_tasks_of_a_step_come_to_is_said_once(
    slurm: Slurm, step: str, command: str, count: int, said: str
):
    done = slurm.run(["srun", *step.split(), "--label", "bash", "-c", command])
    lines = [
        line for line in done.stderr.splitlines() if re.search(r"spawnlaunch( \w+)?: error: ", line)
    ]
    assert len(lines) == count, done.stderr
    assert all(re.search(said, line) for line in lines), lines
    assert done.returncode == 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "where"),
    [
        (f"-n 4 {OURS} no.py", f"{HOST}: "),  # which may be so on this node alone
        (f"-n 4 {OURS} --no-such-flag", ""),
        (f"-n 1 {OURS} no.py", ""),
        (f"-n 1 sleep 2 : -n 1 {OURS} --no-such-flag", f"{HOST}: "),
    ],
)
def test_what_ranks_of_mpirun_come_to_is_said_once(words: str, where: str, tmp_path: Path):
    done = mpirun(tmp_path, *words.split())
    (line,) = errors(done.stderr)
    assert (f"{ERROR}{HOST}: " in line) == bool(where)


@pytest.mark.full
def test_the_explanations_of_several_tasks_are_not_torn(slurm: Slurm):
    done = slurm.run(["srun", "-N2", "-n6", *LAUNCHER, "--explain", str(REPORTER)])
    lines = done.stdout.splitlines()
    assert sum(line.startswith("resource manager") for line in lines) == 1
    ranks = [line for line in lines if re.match(r"rank \d+  node\d  local \d  ", line)]
    assert sorted(int(line.split()[1]) for line in ranks) == [1, 2, 3, 4, 5]
    assert "print a line for each" in done.stdout
    done = slurm.run(["srun", "-N2", "-n6", *LAUNCHER, "--explain=json", str(REPORTER)])
    told = map(json.loads, done.stdout.splitlines())
    assert sorted(each["world"]["rank"] for each in told) == [0, 1, 2, 3, 4, 5]


@pytest.mark.full
def test_the_other_ranks_of_mpirun_explain_themselves_in_a_line(tmp_path: Path):
    """Which have a terminal for stdout."""
    flags = ("--master-addr", "node0", "--explain", str(REPORTER))
    done = mpirun(tmp_path, "-n", "4", *LAUNCHER, *flags)
    assert done.stdout.count("resource manager ") == 1, done.stderr
    assert len(re.findall(r"rank [123]  \S+  local [123]  ", done.stdout)) == 3
