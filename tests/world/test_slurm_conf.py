"""What the site's slurm.conf and srun's own flags say is known, and nobody is told what he did."""

import os
from pathlib import Path

import pytest

from spawnlaunch.world.managers.slurm import site
from tests.cluster.slurm import require_slurm, start
from tests.support.launching import LAUNCHER, REPORTER, SLURM_TASK, clean_environ, launch
from tests.world.asking import Asker

require_slurm()

STEP = ("-N2", "-n4")
RANKS = " ".join(map(str, [*STEP, *LAUNCHER, REPORTER]))
LAUNCHER_OF_TWO = {
    **SLURM_TASK,
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_PROCID": "1",
    "SLURM_GTIDS": "1",
    "SLURMD_NODENAME": "node1",
}
WARNED = "nothing on this node says that srun ends the step"


@pytest.mark.full
@pytest.mark.parametrize(
    "typed",
    [
        "srun --kill-on-bad-exit=1",
        pytest.param("srun --kill-on-bad-exit", marks=pytest.mark.full),
        "srun -K",
        "SLURM_KILL_BAD_EXIT=1 srun",
        "SLURM_KILL_BAD_EXIT=1 srun --export=PATH,PYTHONPATH,REPORT_DIR",
    ],
)
def test_nobody_is_told_to_do_what_was_done(ask: Asker, typed: str):
    told = ask.run(["bash", "-c", f"{typed} {RANKS}"])
    assert len(told.workers) == 4
    assert WARNED not in told.stderr


@pytest.mark.full
def test_what_is_advised_is_seen(ask: Asker):
    told = ask.run(["bash", "-c", f"srun {RANKS}"])
    assert told.stderr.count(WARNED) == 1
    line = told.stderr.partition("wait forever: type ")[2].partition(" before srun")[0]
    assert WARNED not in ask.run(["bash", "-c", f"{line}; srun {RANKS}"]).stderr


@pytest.mark.full
@pytest.mark.parametrize("typed", ["srun -K0", "srun --kill-on-bad-exit=0"])
def test_who_asked_for_the_opposite_is_warned(ask: Asker, typed: str):
    assert WARNED in ask.run(["bash", "-c", f"{typed} {RANKS}"]).stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("KillWait=12\n", "12"),
        ("killwait = 12 # seconds\n", "12"),
        ("#KillWait=3\nKILLWAIT=1\nMessageTimeout=9 KillWait=12\n", "12"),
        ("Include more.conf\n", "40"),
        ("include \\\n  more.conf\nKillWait=12", "12"),
        ("Include slurm.conf\nInclude /dev/zero\n", None),
        ("", None),
    ],
)
def test_slurm_conf_is_read_as_slurm_reads_it(tmp_path: Path, text: str, expected: str | None):
    (tmp_path / "more.conf").write_text("KillWait=40\n")
    (tmp_path / "slurm.conf").write_text(text)
    environ = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert site.value("KillWait", environ) == expected
    assert site.kill_wait_s(environ) == int(expected or 30)


@pytest.mark.parametrize("path", ["/dev/zero", "fifo", "no such file", "."])
def test_a_slurm_conf_that_is_none_is_none(tmp_path: Path, path: str):
    os.mkfifo(tmp_path / "fifo")
    task = {**LAUNCHER_OF_TWO, "SLURM_CONF": str(tmp_path / path)}
    done = launch("--explain", "--nproc=1", REPORTER, environ=clean_environ(**task))
    assert done.returncode == 0, done.stderr
    assert "KillWait" not in done.stdout


def test_a_grace_that_slurm_does_not_give_is_cut_and_said(tmp_path: Path):
    (tmp_path / "slurm.conf").write_text("KillWait=30\n")
    task = {**LAUNCHER_OF_TWO, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    said = "workers that are told to end have 25 s, not 60 (--grace): Slurm kills all after 30 s"
    for grace, expected in ((60, True), (30, False), (20, False)):
        flags = ("--explain", "--nproc=1", f"--grace={grace}", REPORTER)
        done = launch(*flags, environ=clean_environ(**task))
        assert (said in done.stdout) == expected, done.stdout


@pytest.mark.full  # Slurm's KillWait passes
def test_the_report_comes_before_slurm_kills_the_launcher():
    stay = "--no-python sh -c 'trap \"\" TERM; echo ready; while :; do sleep 1; done'"
    fail = "--no-python sh -c 'sleep 3; exit 7'"
    node = " ".join([*LAUNCHER, "--no-gang", "--nproc=1"])  # so that Slurm ends them
    script = f"if [ $SLURM_PROCID = 1 ]; then exec {node} {fail}; else exec {node} {stay}; fi"
    cluster = start(kill_wait_s=14)
    try:
        done = cluster.run(["srun", "-N2", "-n2", "--kill-on-bad-exit=1", "bash", "-c", script])
    finally:
        cluster.stop()
    said = "stopping the workers by SIGTERM, after 9 s by SIGKILL (Slurm's KillWait is 14 s)"
    assert said in done.stderr
    assert "still ran after 9 s: killed" in done.stderr
    assert "task 0: Exited with exit code 143" in done.stderr  # not: Killed
