"""Start the workers of one machine, wait for them, and end them together.

The launcher does nothing but wait for signals: a child that ended is SIGCHLD, the end of the grace
period is SIGALRM, and the user's wish to stop is SIGINT, SIGTERM, SIGHUP or SIGQUIT. All of them
are blocked and taken one by one by sigwait, so there are no handlers, no threads and no polling.

The first worker that fails decides the exit status. The others get SIGTERM, and after the grace
period SIGKILL. What is left of a worker's session is killed as soon as the worker has ended.
"""

import os
import signal
import sys
from collections.abc import Sequence

from spawnlaunch.run.worker import Worker, start

GRACE_S = 30.0  # from SIGTERM to SIGKILL; torchrun's default

STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
WATCHED = (signal.SIGCHLD, signal.SIGALRM, *STOP)


def supervise(workers: Sequence[Worker], grace_s: float = GRACE_S) -> int:
    """Run the workers to their end; the result is the launcher's exit status.

    0 when all ended with 0, the first failing worker's own status (128 + n for signal n), or
    128 + n when signal n told the launcher to stop.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    gang = Gang(grace_s)
    try:
        for worker in workers:
            gang.running[start(worker, mask)] = worker
        while gang.running:
            gang.handle(signal.Signals(signal.sigwait(WATCHED)))
    finally:
        gang.kill()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return gang.status


class Gang:
    """The workers that still run, and what has been decided about them."""

    def __init__(self, grace_s: float) -> None:
        self.running: dict[int, Worker] = {}  # by pid
        self.status = 0
        self._grace_s = grace_s
        self._told_to_stop = False

    def handle(self, signum: signal.Signals) -> None:
        """React to one signal that was sent to the launcher."""
        if signum == signal.SIGCHLD:
            self._reap()
        elif signum == signal.SIGALRM or (signum == signal.SIGINT and self._told_to_stop):
            self.kill()
        elif not self._told_to_stop:
            self._told_to_stop = True
            _say(f"{signum.name}: stopping the workers")
            self._stop(128 + signum)

    def kill(self) -> None:
        """SIGKILL for every worker that still runs, and for all that its session holds."""
        for pid, worker in self.running.items():
            _send(pid, worker, signal.SIGKILL)

    def _stop(self, status: int) -> None:
        """Tell the workers to end; the first call decides the launcher's status."""
        self.status = self.status or status
        for pid, worker in self.running.items():
            _send(pid, worker, signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, self._grace_s)

    def _reap(self) -> None:
        """Take note of every worker that ended: one SIGCHLD may stand for several."""
        for pid in list(self.running):
            ended, wait_status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._ended(pid, os.waitstatus_to_exitcode(wait_status))

    def _ended(self, pid: int, code: int) -> None:
        worker = self.running.pop(pid)
        if worker.own_session:
            _send_group(pid, signal.SIGKILL)
        if code != 0 and self.status == 0:
            _say(_obituary(worker, pid, code, len(self.running)))
            self._stop(code if code > 0 else 128 - code)


def _send(pid: int, worker: Worker, signum: signal.Signals) -> None:
    """Signal a worker that has not been reaped, and its session where it has one of its own."""
    if not (worker.own_session and _send_group(pid, signum)):
        os.kill(pid, signum)  # also a worker that has not reached setsid yet


def _send_group(pid: int, signum: signal.Signals) -> bool:
    """Signal the process group of a session's leader; False where nobody is in it."""
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        return False
    return True


def _obituary(worker: Worker, pid: int, code: int, others: int) -> str:
    how = f"exited with status {code}" if code > 0 else f"died of {signal.Signals(-code).name}"
    rest = f"; stopping the other {others}" if others else ""
    return f"rank {worker.rank} (pid {pid}) {how}{rest}"


def _say(line: str) -> None:
    print(f"spawnlaunch: {line}", file=sys.stderr, flush=True)
