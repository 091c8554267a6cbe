"""A failed job of several nodes is started anew by the README's line, and not for ever."""

from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, require_slurm
from tests.slurm.scripts import requeue_line, start_again
from tests.support.launching import LAUNCHER
from tests.support.patience import PATIENCE_S
from tests.support.processes import until

require_slurm()
pytestmark = pytest.mark.full

LAUNCH = " ".join(LAUNCHER)
FAIL = "--no-python sh -c 'exit 7'"
SIGTERM_CAUGHT = 1 << 14  # of the mask SigCgt, see proc(5)


def test_a_failed_job_is_started_anew_as_often_as_said_and_what_was_typed_wrong_is_not(
    slurm: Slurm,
):
    """There are two attempts at the first, between which Slurm has to be waited for."""
    first, second = (
        slurm.submit(
            f"#!/bin/sh\n#SBATCH -N2 --requeue\nsrun {LAUNCH} {words}\n{requeue_line(1)}\n"
        )
        for words in (FAIL, "no-such.py")
    )
    until(lambda: state(slurm, first)[1] == "1", "requeued")
    start_again(slurm, first)
    assert slurm.wait_for(first, PATIENCE_S) == ("FAILED", 7, 0)
    assert state(slurm, first) == ("FAILED", "1")
    assert slurm.wait_for(second, PATIENCE_S) == ("FAILED", 2, 0)
    assert state(slurm, second) == ("FAILED", "0")


def test_a_rank_that_is_ended_because_of_its_own_slip_has_the_status_of_it(
    slurm: Slurm, tmp_path: Path
):
    """Rank 0 waits until rank 1 has come to the error, as it does where nodes are alike."""
    pid = tmp_path / "pid"
    wait = (
        f"import time; from pathlib import Path; pid = Path({str(pid)!r})\n"
        "while not pid.exists() or not pid.read_text(): time.sleep(0.01)\n"
        "status = Path(f'/proc/{int(pid.read_text())}/status')\n"
        "caught = lambda: int(status.read_text().partition('SigCgt:')[2].split()[0], 16)\n"
        f"while not caught() & {SIGTERM_CAUGHT}: time.sleep(0.01)\n"
    )
    (tmp_path / "wait.py").write_text(wait)
    script = (
        f"if [ $SLURM_PROCID = 0 ]; then {LAUNCHER[0]} {tmp_path}/wait.py; "
        f"else echo $$ > {pid}; fi; exec {LAUNCH} no-such.py"
    )
    step = ["srun", "-N2", "-n2", "--kill-on-bad-exit=1", "sh", "-c", script]
    assert slurm.run(step, timeout=PATIENCE_S).returncode == 2


def state(slurm: Slurm, job: str) -> tuple[str, str]:
    """The state of the job, and how often it has been started anew."""
    shown = slurm.job(job)
    return shown["JobState"], shown["Restarts"]
