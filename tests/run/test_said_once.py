"""What all tasks of a step come to is said once, and what one node comes to is said by it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spawnlaunch.node import proc
from spawnlaunch.run import shared_errors
from tests.cluster.slurm import Slurm
from tests.support.launching import (
    HOST,
    LAUNCHER,
    REPORTER,
    clean_environ,
    launch,
    open_mpi,
    run,
    start,
)
from tests.support.patience import PATIENCE_S
from tests.support.processes import until
from tests.support.required import require_programs

ERROR = "spawnlaunch: error: "


def mpirun(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    require_programs("mpirun", package="openmpi-bin")
    return run("mpirun", "--oversubscribe", *words, environ=clean_environ(**open_mpi(directory)))


def errors(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if ERROR in line]


@pytest.mark.full  # the silent ones wait for ten seconds
@pytest.mark.parametrize("flags", ["--no-such-flag", "--timeout 3"])
def test_flags_that_cannot_be_are_named_by_rank_0(slurm: Slurm, flags: str):
    done = slurm.run(["srun", "-N2", "-n6", "--label", *LAUNCHER, *flags.split(), str(REPORTER)])
    (line,) = errors(done.stderr)
    assert line.startswith(f"0: {ERROR}")
    assert done.stderr.count("Exited with exit code 2") >= 1


@pytest.mark.full
def test_flags_that_cannot_be_are_named_though_the_first_to_end_ends_all(slurm: Slurm):
    srun = ["srun", "-N2", "-n6", "--kill-on-bad-exit=1", *LAUNCHER, "--no-such-flag"]
    assert len(errors(slurm.run(srun).stderr)) == 1


@pytest.mark.full
@pytest.mark.parametrize("kill", [1, pytest.param(0, marks=pytest.mark.full)])
def test_an_error_of_one_node_is_said_by_that_node_once(slurm: Slurm, kill: int):
    script = f'[ "$SLURMD_NODENAME" = node1 ] && x=no.py || x={REPORTER}; {shlex.join(LAUNCHER)} $x'
    nodes = ("-w", "node[0-1]", "-n6", "--ntasks-per-node=3")
    srun = ["srun", *nodes, "--label", f"--kill-on-bad-exit={kill}"]
    done = slurm.run([*srun, "bash", "-c", script])
    (line,) = errors(done.stderr)
    assert re.match(f"[345]: {ERROR}node1: ", line)
    assert "no.py" in line


@pytest.mark.full
def test_different_errors_of_one_node_are_all_said(slurm: Slurm):
    script = f"{shlex.join(LAUNCHER)} no-$SLURM_LOCALID.py"
    done = slurm.run(["srun", "-N1", "-n3", "--kill-on-bad-exit=0", "bash", "-c", script])
    assert len(errors(done.stderr)) == 3


@pytest.mark.full
def test_a_task_whose_rank_cannot_be_read_says_it(slurm: Slurm):
    script = f"[ $SLURM_PROCID = 1 ] && SLURM_PROCID=x; {shlex.join(LAUNCHER)} {REPORTER}"
    done = slurm.run(["srun", "-N1", "-n3", "--kill-on-bad-exit=0", "bash", "-c", script])
    (line,) = errors(done.stderr)
    assert "SLURM_PROCID='x' is not a whole number" in line


@pytest.mark.parametrize("words", ["no.py", pytest.param("--no-such-flag", marks=pytest.mark.full)])
def test_the_ranks_of_mpirun_say_it_once(words: str, tmp_path: Path):
    done = mpirun(tmp_path, "-n", "4", *LAUNCHER, words)
    assert len(errors(done.stderr)) == 1, done.stderr
    if words == "no.py":  # which may be so on this node alone
        assert f"{ERROR}{HOST}: " in done.stderr


def test_the_only_rank_of_mpirun_speaks_as_if_there_were_no_mpirun(tmp_path: Path):
    done = mpirun(tmp_path, "-n", "1", *LAUNCHER, "no.py")
    (line,) = errors(done.stderr)
    assert HOST not in line


@pytest.mark.full
def test_time_in_which_a_silent_rank_could_not_run_does_not_count(tmp_path: Path):
    """Or it ended, and mpirun with it, before rank 0 had spoken."""
    require_programs("mpirun", package="openmpi-bin")
    line = (
        "echo $$ > $OMPI_COMM_WORLD_RANK; [ $OMPI_COMM_WORLD_RANK = 1 ] || "
        f"until [ -e go ]; do sleep 0.02; done; exec {shlex.join(LAUNCHER)} --no-such-flag"
    )
    with start(
        *("mpirun", "--oversubscribe", "-n", "2", "sh", "-c", line),
        stderr=subprocess.PIPE, cwd=tmp_path, environ=clean_environ(**open_mpi(tmp_path)),
    ) as mpirun:  # fmt: skip
        silent = tmp_path / "1"
        until(lambda: silent.exists() and silent.read_text().strip(), "rank 1 has begun")
        pid = int(silent.read_text())
        until(lambda: proc.catches(pid, signal.SIGTERM), "it waits for rank 0 to speak")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(shared_errors.WAIT_S + 1.0)
        os.kill(pid, signal.SIGCONT)
        time.sleep(3.0)
        (tmp_path / "go").touch()
        assert len(errors(mpirun.communicate(timeout=PATIENCE_S)[1])) == 1


@pytest.mark.full
def test_the_programs_of_one_mpirun_each_say_their_own(tmp_path: Path):
    programs = ["-n", "1", "sleep", "2", ":", "-n", "1", *LAUNCHER, "--no-such-flag"]
    done = mpirun(tmp_path, *programs)
    assert len(errors(done.stderr)) == 1, done.stderr


@pytest.mark.full
def test_the_explanations_of_several_tasks_are_not_torn(slurm: Slurm):
    done = slurm.run(["srun", "-N2", "-n6", *LAUNCHER, "--explain", str(REPORTER)])
    lines = done.stdout.splitlines()
    assert sum(line.startswith("resource manager") for line in lines) == 1
    ranks = [line for line in lines if re.match(r"rank \d+  node\d  local \d  ", line)]
    assert sorted(int(line.split()[1]) for line in ranks) == [1, 2, 3, 4, 5]
    assert "say a line for each" in done.stdout


@pytest.mark.full
def test_each_task_explains_itself_in_one_line_of_json(slurm: Slurm):
    done = slurm.run(["srun", "-N2", "-n6", *LAUNCHER, "--explain=json", str(REPORTER)])
    told = map(json.loads, done.stdout.splitlines())
    assert sorted(each["world"]["rank"] for each in told) == [0, 1, 2, 3, 4, 5]


def test_the_other_ranks_of_mpirun_explain_themselves_in_a_line(tmp_path: Path):
    """Which have a terminal for stdout."""
    flags = ("--master-addr", "node0", "--explain", str(REPORTER))
    done = mpirun(tmp_path, "-n", "4", *LAUNCHER, *flags)
    assert done.stdout.count("resource manager ") == 1, done.stderr
    assert len(re.findall(r"rank [123]  \S+  local [123]  ", done.stdout)) == 3


def test_what_is_no_utf8_is_shown_as_escapes():
    done = launch(b"no-\xff\x1b[31m.py".decode(errors="surrogateescape"))
    assert done.returncode == 2
    assert r"\xff" in done.stderr
    assert r"\x1b[31m" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.isascii()


@pytest.mark.full
@pytest.mark.parametrize("program", ["bench", "check"])
def test_torch_that_is_missing_is_said_once_for_each_node(slurm: Slurm, program: str) -> None:
    done = slurm.run(
        ["srun", "-N2", "-n4", sys.executable, "-S", "-m", f"spawnlaunch.{program}"]
    )  # -S: nothing is installed
    said = (
        f"spawnlaunch.{program}: error: node{{}}: torch is not installed; type pip install torch\n"
    )
    assert [done.stderr.count(said.format(node)) for node in (0, 1)] == [1, 1]
    assert done.returncode == 2


@pytest.mark.full
def test_flags_of_the_bench_that_cannot_be_are_said_once(slurm: Slurm) -> None:
    done = slurm.run(
        ["srun", "-N2", "-n4", sys.executable, "-m", "spawnlaunch.bench", "--arms", "north"]
    )
    assert (done.returncode, done.stderr.count("spawnlaunch.bench: error: ")) == (2, 1)
