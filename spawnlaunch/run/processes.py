"""The processes of the workers, which this module starts, signals and reaps.

A pidfd of each worker tells when it has ended. The processes that it has left are killed before it
is reaped: while a zombie keeps its number, no other process can have it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from spawnlaunch.base import events, machine, records, say, signals
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc
from spawnlaunch.outcome import failures
from spawnlaunch.output import Output
from spawnlaunch.run import decisions
from spawnlaunch.run.tree import Tree, exit_code
from spawnlaunch.workers import environment, launches, starting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from spawnlaunch.run import preload

REAP_S = 0.02  # until orphans that have ended are reaped: a worker may be ending, which looks too
FIRST_LOOK_S, RARELY_S = 0.05, 60.0  # until the next look at orphans of unknown workers


class Running(records.NamedTuple):
    """A worker that was started and has not been reaped, so that no other process has its pid."""

    worker: launches.Worker
    pid: int
    pidfd: int | None
    since: float  # monotonic clock, seconds


class FirstSignal(records.NamedTuple):
    """The first signal that was sent to end a worker, and the state in which it met the worker."""

    sent_at: float  # monotonic clock, seconds
    was_dying: bool  # by itself, then
    was_zombie: bool


class Dead(records.NamedTuple):
    """A worker that has ended, until its orphans are killed and its end is reported."""

    running: Running
    has_exited_zero: bool | None  # None is not known
    end: Sequence[Any] | None  # its status and its usage, where it is reaped already


class Processes:
    """The workers of a launch, and below them all processes that they have started.

    `caught` are the signals that this process has handlers for. `is_well` tells whether nothing
    has gone wrong: then processes that workers with status 0 leave may go on. `on_exit` is called
    for each end. The usage of a worker with status 0 is read for --result and --record only.

    The way of an end: pidfd -> _on_worker_exit -> reap_dead -> _note -> Supervisor._on_exit ->
    Decisions.exited (the others are told to end) -> endings.judged -> Decisions.failed (which
    failure was the first). Once all have ended, the way of the status: Cause.status ->
    Supervisor.run -> guard.carry_out -> guard.run, which exits with it -> front.run -> walk.walk
    -> entry.main, which exits.
    """

    def __init__(
        self, launch: launches.Launch, loop: events.Loop, output: Output, tree: Tree,
        caught: frozenset[int], is_well: Callable[[], bool],
        on_exit: Callable[[failures.WorkerExit], None],
    ) -> None:  # fmt: skip
        self._loop, self._output, self._tree = loop, output, tree
        self._launch, self._caught = launch, caught
        self._is_well, self._on_exit = is_well, on_exit
        self.by_rank: dict[int, Running] = {}
        self._former_sessions: set[int] = set()  # by the pids of workers that are no more
        self._well: set[int] = set()  # ranks that ended well: their leftovers may go on
        self._dead: list[Dead] = []
        self._sent: dict[int, int] = {}  # by rank, the last signal sent to end it
        self._first_signals: dict[int, FirstSignal] = {}  # by rank, of those sent to end it

    def start(
        self, workers: Sequence[launches.Worker], become: starting.BecomeWorker,
        image: preload.Image | None,
    ) -> None:  # fmt: skip
        """Fork the workers, or have the image fork them.

        Caught signals wait until all are there.
        """
        self._former_sessions, self._well = set(), set()
        self._sent, self._first_signals = {}, {}
        machine.pthread_sigmask(signal.SIG_BLOCK, self._caught)
        self._output.begin(len(workers))
        failed: OSError | None = None
        for worker in workers:
            try:
                self._output.connect(worker)
                if image:
                    image.start_worker(worker, self._output.worker_ends)
                else:
                    first = partial(self._set_up, machine.getpid(), dict(self._output.worker_ends))
                    child = partial(starting.become_worker, worker, self._launch, become, first)
                    self._watch(worker, machine.fork(child), machine.monotonic())
            except OSError as error:
                failed = error
                break
            finally:
                self._output.close_worker_ends()
        if image:
            started, failed = image.deliver(failed)
            for worker, (pid, since) in zip(workers, started, strict=False):
                self._watch(worker, pid, since)
        if failed:
            missing = workers[len(self.by_rank) :]
            self._output.say([f"cannot start {missing[0].name}: {say.describe_refusal(failed)}"])
            for each in missing:
                self._note(Running(each, 0, None, machine.monotonic()), os.EX_OSERR)
        machine.pthread_sigmask(signal.SIG_UNBLOCK, self._caught)

    def _watch(self, worker: launches.Worker, pid: int, since: float) -> None:
        """Wait for the worker's end from now on: epoll tells the order of the ends that follow."""
        running = Running(worker, pid, machine.open_pidfd(pid), since)
        self.by_rank[worker.rank] = running
        if running.pidfd is not None:
            try:
                self._loop.watch(running.pidfd, partial(self._on_worker_exit, running))
            except OSError:  # so many cannot be watched (epoll_ctl(2), ENOSPC): SIGCHLD tells
                machine.close(running.pidfd)
                self.by_rank[worker.rank] = running._replace(pidfd=None)

    def _set_up(self, guard: int, ends: Mapping[int, int]) -> None:
        """In a fork of the guard, connect these pipes, and arrange to die with the guard."""
        signals.set_default(self._caught)
        machine.die_with_parent(guard)
        self._output.use_ends(ends)

    def finish(self) -> None:
        """Stop waiting: no worker runs any more."""
        self._loop.alarm(self.reap_dead, None)
        self._loop.alarm(self._look_at_orphans, None)

    def of(self, ranks: Iterable[int]) -> list[Running]:
        """The running workers of these ranks, in their order."""
        return [self.by_rank[rank] for rank in sorted(ranks) if rank in self.by_rank]

    # Signals

    def send(self, signum: int, ranks: frozenset[int]) -> None:
        """Send SIGTERM to the worker alone, any other signal to its whole group.

        A DataLoader whose processes die of a SIGTERM of their own raises in the worker, which is
        about to save. A worker that is stopped is continued, as it could not use its grace.
        """
        if signum in (signal.SIGTERM, signal.SIGKILL):
            for rank in ranks & self.by_rank.keys():
                self._sent[rank] = int(signum)
                if rank not in self._first_signals:
                    pid = self.by_rank[rank].pid
                    now, is_dying = machine.monotonic(), proc.is_dying(pid)
                    is_zombie = is_dying and proc.is_zombie(pid)
                    self._first_signals[rank] = FirstSignal(now, is_dying, is_zombie)
        for running in self.of(ranks):
            group = running.worker.has_session and signum != signal.SIGTERM
            if not (group and signals.send(running.pid, signum, is_group=True)):
                signals.send(running.pid, signum)
            if signum == signal.SIGTERM and proc.is_stopped(running.pid):
                self.send(signal.SIGCONT, frozenset({running.worker.rank}))

    def forward(self, signum: int, ranks: frozenset[int]) -> None:
        """Signal those workers that catch the signal."""
        for running in self.of(ranks):
            if proc.catches(running.pid, signum):
                signals.send(running.pid, signum)

    def kill(self, ranks: frozenset[int]) -> None:
        """Send SIGKILL to workers, and to all processes below them."""
        self._tree.kill_below(running.pid for running in self.of(ranks))
        self.send(signal.SIGKILL, ranks)

    def leave(self, ranks: frozenset[int]) -> None:
        """Stop waiting for workers that SIGKILL does not end; they are named at the end."""
        self._tree.patience_s = decisions.LAST_S  # a process has not died of SIGKILL
        for running in self.of(ranks):
            del self.by_rank[running.worker.rank]
            self._former_sessions.add(running.pid)
            self._forget(running)
            self._note(running, -signal.SIGKILL, is_unreaped=True)

    # Ends

    def look_at_children(self) -> None:
        """Note the end of an adopted orphan, or of a worker where the kernel has no pidfds."""
        for running in list(self.by_rank.values()):
            if running.pidfd is None:
                pid, *end = machine.wait4(running.pid, os.WNOHANG)
                if pid:
                    self._on_worker_exit(running, end)
        # Where there are no workers, it comes from a process that an import has started.
        if self.by_rank and not self._dead:
            self._loop.alarm(self.reap_dead, REAP_S)

    def _on_worker_exit(self, running: Running, end: Sequence[Any] | None = None) -> None:
        """Note the end of a worker.

        `end` is its status and its usage, where it was reaped already.
        """
        del self.by_rank[running.worker.rank]
        has_exited_zero = end[0] == 0 if end else None
        if end is None:  # a zombie still, which keeps its number
            try:
                zombie = machine.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
                has_exited_zero = zombie.si_status == 0 if zombie else None
            except OSError:  # refused
                has_exited_zero = exit_code(running.pid) == 0
        if has_exited_zero and self._is_well():
            self._well.add(running.worker.rank)
        else:
            self._former_sessions.add(running.pid)
            if running.worker.has_session:
                signals.send(running.pid, signal.SIGKILL, is_group=True)
        self._dead.append(Dead(running, has_exited_zero, end))
        self._loop.alarm(self.reap_dead, 0)

    def reap_dead(self) -> None:
        """Clear up after all workers that have ended in this turn, then reap them.

        All together, because each look takes the longer the more orphans there are.
        """
        self._kill_orphans()
        dead, self._dead = self._dead, []
        for running, has_exited_zero, end in dead:
            if end is not None:
                status, used = end
            elif has_exited_zero is False or self._launch.result or self._launch.request.record:
                pid, status, used = machine.wait4(running.pid, os.WNOHANG)
            else:  # which takes a module less
                (pid, status), used = machine.waitpid(running.pid, os.WNOHANG), None
            if end is None and not pid:  # its tracer has not waited for it yet, and may never do
                status = exit_code(running.pid)
            self._forget(running)
            self._note(running, os.waitstatus_to_exitcode(status), used=used)

    def _forget(self, running: Running) -> None:
        if running.pidfd is not None:
            self._loop.forget(running.pidfd)
            machine.close(running.pidfd)

    def _kill_orphans(self, next_look_s: float = FIRST_LOOK_S) -> None:
        """Kill the processes that ended workers have left.

        While a process starts another program it shows no environment, and seems to belong to no
        worker. Such a process is looked at again, ever more rarely.
        """
        pids = {running.pid for running in self.by_rank.values()}
        pids |= {each.running.pid for each in self._dead} | self._tree.spared
        if not self._is_well():
            self._well.clear()
        spared = self.by_rank.keys() | self._well
        nobodys = self._tree.kill_orphans(pids, spared, self._former_sessions)
        self._next_look_s = next_look_s
        self._loop.alarm(self._look_at_orphans, next_look_s if nobodys else None, always=True)

    def _look_at_orphans(self) -> None:
        self._kill_orphans(next_look_s=min(2 * self._next_look_s, RARELY_S))

    def _note(
        self, running: Running, code: int, is_unreaped: bool = False, used: Any = None
    ) -> None:
        """Report how a worker has ended; a worker without a pid could not be started."""
        worker, now = running.worker, machine.monotonic()
        sent, first = self._sent.get(worker.rank, 0), self._first_signals.get(worker.rank)
        code = code or int(not sent and self._launch.exit_zero_is_failure(worker))
        failed_between = now, now
        if first and first.was_dying and code != -sent:  # so it had not begun to die of our signal
            # Ends are seen in their order, and an exit or a SIGKILL is quick, as it dumps no core.
            is_quick = first.was_zombie and (code >= 0 or code == -signal.SIGKILL)
            failed_between = first.sent_at if is_quick else running.since, first.sent_at
            sent, first = 0, None
        tail, last_output_at = None, failures.NEVER
        if code:
            tail, last_output_at = self._output.read_last(worker.rank)
        self._on_exit(
            failures.WorkerExit(
                worker.rank, worker.local_rank, running.pid or None, code, running.since, now,
                failed_between, sent,
                error_file=worker.environ.get(environment.ERROR_FILE),
                stderr=worker.routes.stderr.file,
                stderr_begin=self._output.stderr_begins.get(worker.rank, 0),
                stdout=worker.routes.stdout.file,
                tail=tail, used=used, is_unreaped=is_unreaped,
                signalled_at=first.sent_at if first else failures.NEVER,
                last_output_at=last_output_at,
            )
        )  # fmt: skip
