"""A run that must end before it is complete: it notes that, and saves at the next step.

    what                         where it comes from
    SIGUSR1, SIGTERM             Slurm: --signal=USR1@120, scancel, preemption, the end of the time
    the deadline of --max-time   the person
    SLURM_JOB_END_TIME           Slurm, in seconds since 1970 (srun(1), "OUTPUT ENVIRONMENT")

A handler does nothing but note the signal, which may come twice and to every process of the step.
The ranks compare their notes at the end of a step, so that all of them save the same step.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import resource_tracker

from .flags import seconds

SIGNALS = frozenset({signal.SIGUSR1, signal.SIGTERM})
MARGIN_S = 60.0  # kept for the last save, but at most
MARGIN_SHARE = 0.1  # of the time that was given
MOST_RESTARTS = (
    1000  # of a Slurm job; without a bound one that is always preempted goes on for ever
)

_noted: list[str] = []


def note_signals() -> None:
    """From now on SIGUSR1 and SIGTERM ask for a save, however often they come."""
    for number in SIGNALS:
        signal.signal(number, _note)


def _note(number: int, _frame: object) -> None:
    _noted.append(signal.Signals(number).name)


class Deadline:
    """When this process has to begin its last save; ``started`` and the rest are Unix times."""

    def __init__(self, max_time: str | None, environ: Mapping[str, str], started: float) -> None:
        ends: list[tuple[float, str]] = []
        if max_time is not None:
            ends.append((started + seconds(max_time), "the time of --max-time"))
        slurm = environ.get("SLURM_JOB_END_TIME", "")
        if slurm.isdecimal():
            ends.append((float(slurm), "the time of the Slurm job"))
        end, self.name = min(ends, default=(float("inf"), ""))
        self.at = end - min(MARGIN_S, MARGIN_SHARE * max(0.0, end - started))

    def reason(self) -> str:
        """Why this process wants to stop; nothing if it does not."""
        if _noted:
            return _noted[0]
        return self.name if time.time() >= self.at else ""


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes started in here never see the signals: Slurm sends them to every process.

    A blocked signal stays blocked in children, from their first instruction on and across exec.
    This process hears at the end what was sent in between.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    # When multiprocessing starts its tracker, it unblocks SIGTERM and SIGINT in the starting thread
    # whether they were blocked or not. So it comes first, and they are blocked again. The tracker
    # cleans up what a rank left that ended in haste, and need not complain of it.
    warnings = os.environ.get("PYTHONWARNINGS", "")
    quiet = f"{warnings},ignore:resource_tracker:UserWarning".lstrip(",")
    # Helpers are "python -c", which would take a signal.py of the working directory for Python's.
    with _environment(PYTHONSAFEPATH="1"):
        with _environment(PYTHONWARNINGS=quiet):
            resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_SETMASK, before | SIGNALS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(**changes: str) -> Iterator[None]:
    """What starts in here has these variables."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def requeue(environ: Mapping[str, str], status: int) -> str:
    """Put this Slurm job back into its queue; what came of it, in one line."""
    job = environ.get("SLURM_JOB_ID", "")
    if not job:
        return "not requeued: there is no SLURM_JOB_ID, so this is no Slurm job"
    scontrol = shutil.which("scontrol")
    if scontrol is None:
        return (
            "not requeued: there is no scontrol here, as in a container; write in the batch script "
            f'behind srun: [ $? -eq {status} ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt '
            f"{MOST_RESTARTS} ] && scontrol requeue $SLURM_JOB_ID"
        )
    restarts = environ.get("SLURM_RESTART_COUNT", "")
    if restarts.isdigit() and int(restarts) >= MOST_RESTARTS:
        return f"not requeued: the Slurm job {job} has been started anew {MOST_RESTARTS} times"
    done = subprocess.run([scontrol, "requeue", job], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"not requeued: scontrol requeue {job}: {done.stderr.strip()}"
    return f"requeued the Slurm job {job}"
