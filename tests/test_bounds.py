"""Whatever a flag, a variable or a file holds: the end is a launch, or one line with status 2."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.launching import (
    LAUNCHER,
    MPICH_RANK,
    REPORTER,
    SLURM_TASK,
    clean_environ,
    launch,
    run,
)


def one_line(*words: object, cwd: Path | str = ".", **environ: str) -> str:
    """What a launch says that ends with 2."""
    done = launch(*words, cwd=cwd, environ=clean_environ(**environ))
    assert done.returncode == 2, done.stderr[-2000:]
    (line,) = done.stderr.splitlines()
    assert line.startswith("spawnlaunch: error: ")
    assert len(line) < 1000
    return line


@pytest.mark.parametrize(
    ("words", "environ", "said"),
    [
        ("--nproc 1000000000", {}, "--nproc 2"),
        ("--nproc 40000", {}, "32768"),
        ("", {**SLURM_TASK, "SLURM_GTIDS": "", "SLURM_STEP_TASKS_PER_NODE": "1000000000(x2)",
              "SLURM_STEP_NUM_TASKS": "2000000000"}, "1000000000 ranks on this node"),
        ("", {**MPICH_RANK, "PMI_SIZE": "10000000000", "MPI_LOCALNRANKS": "10000000000"},
         "unset what an outer launcher left"),
        ("--nproc 2", {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-1000000000]",
                       "SLURM_JOB_NUM_NODES": "1000000000"}, "srun"),
        ("--nproc 2", {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-1000000000]",
                       "SLURM_JOB_NUM_NODES": "1"}, "names more than 1000000 hosts"),
    ],
)  # fmt: skip
def test_more_workers_or_hosts_than_there_can_be(words: str, environ: dict[str, str], said: str):
    assert said in one_line(*words.split(), REPORTER, **environ)


def test_a_root_without_a_name_is_no_directory():
    assert "--sysfs-root ''" in one_line("--explain", "--sysfs-root", "", REPORTER)


@pytest.mark.parametrize(
    "words",
    [
        "no_such_script.py",
        f"--result result.json {REPORTER}",
        f"--log-dir logs {REPORTER}",
        "--log-dir logs --explain -m json.tool",
        "",
    ],
)
def test_a_name_in_a_deleted_directory_is_refused(words: str, tmp_path: Path):
    done = in_a_deleted_directory(tmp_path, words)
    assert done.returncode == 2, done.stderr
    assert "run cd DIR first" in done.stderr


def test_a_launch_needs_no_working_directory(tmp_path: Path):
    done = in_a_deleted_directory(tmp_path, "--nproc 2 --no-python true")
    assert done.returncode == 0, done.stderr


def in_a_deleted_directory(tmp_path: Path, words: str) -> subprocess.CompletedProcess[str]:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && {shlex.join(LAUNCHER)} --quiet {words}"
    return run("sh", "-c", script)
