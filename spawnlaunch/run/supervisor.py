"""Start the workers of one machine, wait for them, and do what was decided.

`decisions` decides, this file acts: one loop over a pidfd per worker, a pipe of signals, and, where
a guard runs it, the pipe from the launcher. Whatever a worker leaves is killed before the worker
itself is reaped.
"""

from __future__ import annotations

import gc
import os
import time
from functools import partial

from spawnlaunch.node import proc
from spawnlaunch.node.cgroup import memory_kills
from spawnlaunch.reading import file_text
from spawnlaunch.records import NamedTuple
from spawnlaunch.run import decisions, kernel, signals
from spawnlaunch.run.decisions import LAST_S, State
from spawnlaunch.run.environment import ERROR_FILE
from spawnlaunch.run.loop import Loop
from spawnlaunch.run.model import LaunchResult, WorkerExit
from spawnlaunch.run.output import Output
from spawnlaunch.run.signals import signal
from spawnlaunch.run.tree import exit_code, not_reaped, why_it_stays
from spawnlaunch.run.worker import exec_worker, fork_worker, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from spawnlaunch.node.cgroup import MemoryKills
    from spawnlaunch.run.decisions import Action, Event
    from spawnlaunch.run.hang import HangHelp
    from spawnlaunch.run.journal import Journal
    from spawnlaunch.run.loop import SignalPipe
    from spawnlaunch.run.model import LaunchOptions, Worker
    from spawnlaunch.run.preload import Image
    from spawnlaunch.run.tree import Tree
    from spawnlaunch.run.worker import BecomeWorker, Origin

TYPED = 0x80  # added to the number of a signal that the terminal sent, in the launcher's pipe

SETTLED_S = 1.0  # in which the workers need the processors to start
AGAIN_S, RARELY_S = 0.05, 60.0  # until the next look at orphans that are nobody's: first, at most


class Running(NamedTuple):
    """A worker that was started and has not been reaped, so that its pid is its own."""

    worker: Worker
    pid: int
    pidfd: int | None
    since: float  # monotonic clock, seconds


class Supervisor:
    """The workers of one launch: the state of the decisions, and the processes behind it."""

    def __init__(
        self, options: LaunchOptions, origin: Origin, tree: Tree, pipe: SignalPipe
    ) -> None:
        request = options.launch.request
        self._options = options
        self._origin = origin
        self._tree = tree
        self._pipe = pipe
        self._become: BecomeWorker = exec_worker
        self._image: Image | None = None  # of --preload
        self.loop = Loop()
        # The hub tells what a worker alone on another node said last.
        is_told = options.launch.resolution.gathering is not None and not os.isatty(2)
        self.output = Output(self.loop, hears_all=request.hang_timeout_s > 0 or is_told)
        self.journal: Journal | None = None  # of --record
        if options.launch.journal is not None:
            from spawnlaunch.run.journal import Journal

            self.journal = Journal(options.launch.journal, options.launch.hostname)
        self.hang_help: HangHelp | None = None
        if request.hang_timeout_s or request.stack_on_usr2:
            from spawnlaunch.run import hang

            self.hang_help = hang.HangHelp(
                options.launch, self.loop, self.output, self.happened, self.journal
            )
        self._by_rank: dict[int, Running] = {}
        self._ended: set[int] = set()  # pids of workers that are no more
        self._well: set[int] = set()  # ranks that ended well: what they have left may go on
        # Of those; with what the kernel told of the zombie; and, of one that is reaped already, its
        # status and what it used.
        self._dead: list[tuple[Running, int | None, Sequence[Any] | None]] = []
        self._sent: dict[int, int] = {}  # by rank, the last signal sent to end it
        self.exits: list[WorkerExit] = []
        self._zombies: list[int] = []  # that a tracer keeps us from reaping
        self.kills_before: MemoryKills | None = None
        self.patience_s = decisions.STUCK_S  # with what the workers have left
        self._again_s = AGAIN_S
        self._is_looked_at = False  # the script
        self.state = State(frozenset(), options.grace_s)
        # Told of each event after it was decided about: of the launchers of several nodes.
        self.listener: Callable[[Event], None] | None = None

    def run(self, workers: Sequence[Worker]) -> LaunchResult:
        """Start the workers and see them to their end; then others may be run."""
        self._ended, self._sent, self.exits, self._zombies = set(), {}, [], []
        self._well.clear()
        request = self._options.launch.request
        self.state = State(
            frozenset(worker.rank for worker in workers),
            self._options.grace_s,
            self._options.failure_grace_s,
            lone=len(workers) == 1 and not workers[0].own_session,
            stack_signal=signal.SIGUSR2 if request.stack_on_usr2 else 0,
            ends_hung=request.on_hang == "kill" and not self.listener,  # else all nodes' say
            foreground=frozenset(worker.rank for worker in workers if not worker.own_session),
        )
        if len(workers) > 1 and kernel.IS_LINUX and os.isatty(0) and not self.output.keyboard:
            from spawnlaunch.run.keyboard import Keyboard

            say, sinks, debugged = self.output.say, self.output.sinks, request.debug
            self.output.keyboard = Keyboard(self.loop, sinks, say, self._by_rank, debugged)
        self._start(workers)
        if self.hang_help:
            self.hang_help.begin(workers)
        if self.journal:
            self.journal.began(workers, self._by_rank.values())
        self._look_at_script()
        self.loop.alarm(self._settled, SETTLED_S)
        if not gc.isenabled():  # it is off while a launch starts; one may last for days
            gc.freeze()  # a look at all that there is would copy pages shared with the launcher
            gc.enable()
        self.kills_before = memory_kills()
        while self.state.running:
            self.loop.turn()
        for call in (self._time_up, self._reap_dead, self._look_again, self._settled):
            self.loop.alarm(call, None)
        if self.hang_help:
            self.hang_help.cancel()
        if self._zombies:
            self.output.say(not_reaped(self._zombies, LAST_S))
        state, exits = self.state, tuple(self.exits)
        if not state.status:
            return LaunchResult(0, state.cause, exits)
        from spawnlaunch.run import report  # most launches have nothing to report

        why = report.out_of_memory(self.kills_before, memory_kills())
        return LaunchResult(state.status, state.cause, exits, why)

    def _settled(self) -> None:
        """The workers have started: now there is time for what is not needed at once."""
        self.output.publish({rank: one.pid for rank, one in self._by_rank.items()})
        _import_the_rest()

    def _look_at_script(self) -> None:
        """Say it where a script expects its local rank as an argument, and is given none.

        The workers are about to read it too.
        """
        request = self._options.launch.request
        program = request.program
        if len(self._by_rank) < 2 or program.kind != "script" or self._is_looked_at:
            return
        self._is_looked_at = True
        text = file_text(program.target) or ""
        if "local_rank" in text or "local-rank" in text:
            from spawnlaunch.torchrun import local_rank

            self.output.say(local_rank.advice(request, text))

    def end_after(self, seconds: float) -> None:
        """Bound the time of the launch, from now on."""
        self.loop.alarm(lambda: self.happened(decisions.TimedOut()), seconds)

    def is_told_to_end(self) -> bool:
        """Whether somebody has asked for the end of the launch, now that nobody runs.

        While the launch is stopped, that is not known.
        """
        self.loop.turn(0)
        while self.state.suspended and not self.state.told_later:
            self.loop.turn()
        return self.state.told_later

    def preload(self, modules: Sequence[str]) -> tuple[int, str] | None:
        """Import modules for all workers. The result is how that has ended the launch, if it has.

        Raises UsageError where they cannot be imported, or not be forked then.
        """
        if not kernel.IS_LINUX:  # without subreapers this process is the image itself
            from spawnlaunch.run.preload import forked

            self._become = forked.worker_maker(modules)
            return None
        from spawnlaunch.run.preload import Image

        self._image = Image(modules, self._origin, self._pipe.caught)
        self._tree.kept.add(self._image.pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._pipe.caught)
        self._image.listen(self.loop, lambda: self.state)
        return self._image.failure() if not self.state.cause else (self.state.status, "")

    def kill(self) -> None:
        """SIGKILL for every worker that still runs, and for what is below it."""
        self._tree.kept.clear()
        if self._by_rank:
            self._act(decisions.Kill(frozenset(self._by_rank)))

    def look(self, for_s: float) -> bool:
        """Take note of what happens for a moment; False: somebody wants an end of the launch."""
        self.loop.turn(for_s)
        return not self.state.was_told_to_end

    def drain(self) -> None:
        """Write out what the workers have said, now that all have ended."""
        self.output.drain(self._options.grace_s, lambda: self.state.was_told_to_end)

    def happened(self, event: Event) -> None:
        """Decide about an event, and act."""
        self.state, actions = decisions.decide(self.state, event)
        for action in actions:
            self._act(action)
        if self.listener:
            self.listener(event)

    # Events

    def watch_signals(self, meaning: Callable[[int], Event]) -> None:
        """Take note of signals to this process; those that mean to end the job are events."""

        def read() -> None:
            for signum in self._pipe.read():
                if signum != signal.SIGCHLD:
                    self.happened(meaning(signum))
                if signum == signal.SIGTSTP:
                    os.kill(os.getpid(), signal.SIGSTOP)  # we are the launcher ourselves
            self._a_child_ended()

        self.loop.watch(self._pipe.fd, read)

    def watch_launcher(self, fd: int) -> None:
        """Take note of what the launcher passes on, and of its end."""

        def read() -> None:
            numbers = os.read(fd, 4096)
            for number in numbers:
                typed, signum = bool(number & TYPED), number & ~TYPED
                prompt = typed and signum == signal.SIGINT and self._prompt()
                self.happened(decisions.Signalled(signum, typed, prompt))
            if not numbers:
                self.loop.forget(fd)
                self.happened(decisions.LauncherGone())

        self.loop.watch(fd, read)

    def _time_up(self) -> None:
        killing = self.state.stage == decisions.KILLING
        running = self._by_rank.items() if killing else ()
        stay = frozenset(rank for rank, one in running if why_it_stays(one.pid))
        self.happened(decisions.TimeUp(self._prompt(), stay))

    def _prompt(self) -> bool:
        if not self.state.lone:
            return False
        from spawnlaunch.run.keyboard import prompt

        return prompt.prompt_is_open()

    def _a_child_ended(self) -> None:
        """A worker, where the kernel has no pidfds; else an orphan that we have adopted."""
        for running in list(self._by_rank.values()):
            if running.pidfd is None:
                pid, *end = os.wait4(running.pid, os.WNOHANG)
                if pid:
                    self._has_ended(running, end)
        if self._by_rank:  # else it is of no worker: of what an import has started
            self.loop.alarm(self._reap_dead, 0)

    def _has_ended(self, running: Running, end: Sequence[Any] | None = None) -> None:
        """Take note of the end of a worker; its status, and what it used, where it was reaped."""
        del self._by_rank[running.worker.rank]
        if end is None:  # a zombie still, which keeps its number
            zombie = os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            code = zombie.si_status if zombie else None
        else:
            code = end[0]
        if code == 0 and self.state.stage == decisions.RUNNING:
            self._well.add(running.worker.rank)
        else:
            self._ended.add(running.pid)
            if running.worker.own_session:
                signals.send_group(running.pid, signal.SIGKILL)
        self._dead.append((running, code, end))
        self.loop.alarm(self._reap_dead, 0)

    def _reap_dead(self) -> None:
        """Clear up after all workers that have ended in this turn, then reap them.

        In this order: while a zombie keeps its number, no other process can have it. And together:
        each look takes as long as there are orphans.
        """
        self._kill_orphans()
        dead, self._dead = self._dead, []
        for running, code, end in dead:
            if end is not None:
                status, used = end
            elif code or self._options.result or self.journal:  # who is told of what it used
                pid, status, used = os.wait4(running.pid, os.WNOHANG)
            else:  # which takes a module less
                (pid, status), used = os.waitpid(running.pid, os.WNOHANG), None
            if end is None and not pid:  # its tracer has not waited for it yet, and may never do
                status = exit_code(running.pid)
                self._zombies.append(running.pid)
            self._forget(running)
            self._note(running, os.waitstatus_to_exitcode(status), used=used)

    def _forget(self, running: Running) -> None:
        if running.pidfd is not None:
            self.loop.forget(running.pidfd)
            os.close(running.pidfd)

    def _leave(self, ranks: Iterable[int]) -> None:
        """Wait no longer for workers that SIGKILL does not end; they are named when all is over."""
        self.patience_s = LAST_S
        for running in self._of(ranks):
            del self._by_rank[running.worker.rank]
            self._ended.add(running.pid)
            self._forget(running)
            self._note(running, -signal.SIGKILL, left=True)

    def _kill_orphans(self, again_s: float = AGAIN_S) -> None:
        """Kill what ended workers have left.

        While a process begins another program it shows no environment, and so seems to be nobody's.
        Such a one is looked at again, ever more rarely.
        """
        pids = {running.pid for running in self._by_rank.values()}
        pids |= {running.pid for running, *_ in self._dead} | self._tree.kept
        if self.state.cause:
            self._well.clear()
        spared = self._by_rank.keys() | self._well
        nobodys = self._tree.kill_orphans(pids, spared, self._ended)
        self._again_s = again_s
        self.loop.alarm(self._look_again, again_s if nobodys else None)

    def _look_again(self) -> None:
        self._kill_orphans(again_s=min(2 * self._again_s, RARELY_S))

    def _note(self, running: Running, code: int, left: bool = False, used: Any = None) -> None:
        """Take down how a worker has ended; one without a pid could not be started."""
        worker = running.worker
        self.exits.append(
            WorkerExit(
                rank=worker.rank,
                local_rank=worker.local_rank,
                pid=running.pid or None,
                code=code,
                after_s=time.monotonic() - running.since,
                sent=self._sent.get(worker.rank, 0),
                error_file=worker.environ.get(ERROR_FILE),
                stderr=worker.routes.stderr.file,
                tail=self.output.tail(worker.rank) if code else None,
                used=used,
                left=left,
            )
        )
        if self.journal:
            self.journal.ended(self.exits[-1])
        self.happened(decisions.Exited(worker.rank, code))

    # Actions

    def _start(self, workers: Sequence[Worker]) -> None:
        """Fork the workers. Caught signals wait until all are there."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self._pipe.caught)
        self.output.begin(len(workers))
        started: list[tuple[int, float]] = []
        failed: OSError | None = None
        for worker in workers:
            try:
                self.output.connect(worker)
                if self._image:
                    self._image.ask(worker, self.output.theirs)
                else:
                    pid = fork_worker(
                        worker, self._origin, self._pipe.caught, self.output, self._become
                    )
                    started.append((pid, time.monotonic()))
            except OSError as error:
                failed = error
                break
            finally:
                self.output.let_go()
        if self._image:
            started, failed = self._image.deliver(failed)
        for worker, (pid, since) in zip(workers, started, strict=False):
            running = Running(worker, pid, kernel.open_pidfd(pid), since)
            self._by_rank[worker.rank] = running
            if running.pidfd is not None:
                self.loop.watch(running.pidfd, partial(self._has_ended, running))
        if failed:
            self.output.say([refused(workers[len(started)], failed)])
            for missing in workers[len(started) :]:
                self._note(Running(missing, 0, None, time.monotonic()), os.EX_OSERR)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._pipe.caught)

    def _act(self, action: Action) -> None:
        match action:
            case decisions.Send(signum, ranks):
                self._send(signum, ranks)
            case decisions.Forward(signum, ranks):
                caught = (one for one in self._of(ranks) if proc.catches(one.pid, signum))
                for running in caught:
                    signals.send(running.pid, signum)
            case decisions.Kill(ranks):
                self._tree.kill_below(running.pid for running in self._of(ranks))
                self._send(signal.SIGKILL, ranks)
            case decisions.Leave(ranks):
                self._leave(ranks)
            case decisions.TellStacks(ranks):
                if self.hang_help:
                    self.hang_help.stacks.tell((r.worker, r.pid) for r in self._of(ranks))
            case decisions.Deadline(after_s):
                self.loop.alarm(self._time_up, after_s)
            case decisions.Announce(what, number):
                self._announce(what, number)

    def _announce(self, what: str, number: int) -> None:
        from spawnlaunch.run import report  # most launches have nothing to report

        words = report.announced(what, number, self.state, self.exits, self._options)
        self.output.say([words])
        if self.journal:
            self.journal.tell("said", what=what, words=words)

    def _of(self, ranks: Iterable[int]) -> list[Running]:
        return [self._by_rank[rank] for rank in sorted(ranks) if rank in self._by_rank]

    def _send(self, signum: int, ranks: frozenset[int]) -> None:
        """SIGTERM is the worker's alone, all else is for its whole group.

        A DataLoader whose processes die of a SIGTERM of their own raises in the worker, which is
        about to save.
        """
        if signum in (signal.SIGTERM, signal.SIGKILL):
            self._sent.update(dict.fromkeys(ranks & self._by_rank.keys(), int(signum)))
        if self.hang_help and signum == signal.SIGCONT:
            self.hang_help.begin_anew()
        for running in self._of(ranks):
            group = running.worker.own_session and signum != signal.SIGTERM
            if not (group and signals.send_group(running.pid, signum)):
                signals.send(running.pid, signum)


def _import_the_rest() -> None:
    """What the end will need, before somebody replaces what is installed."""
    import json  # noqa: F401
    import re  # noqa: F401

    from spawnlaunch.run import report  # noqa: F401
