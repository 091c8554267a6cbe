"""Start the workers of one machine, wait for them, and do what was decided.

`decisions` decides, this file acts: one loop over a pidfd per worker, a pipe of signals, and, where
a guard runs it, the pipe from the launcher. Whatever a worker leaves is killed before the worker
itself is reaped.
"""

import gc
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, NoReturn

from spawnlaunch.run import decisions, kernel, oom, signals, terminal
from spawnlaunch.run.decisions import Action, Event, State
from spawnlaunch.run.loop import Loop, SignalPipe
from spawnlaunch.run.options import Options
from spawnlaunch.run.outcome import Ending, Outcome
from spawnlaunch.run.output import Output
from spawnlaunch.run.processtree import Tree, catches
from spawnlaunch.run.say import say, worded, write
from spawnlaunch.run.worker import Worker, become, start

TYPED = 0x80  # added to the number of a signal that the terminal sent, in the launcher's pipe

SETTLED_S = 1.0  # in which the workers need the processors to start
AGAIN_S, RARELY_S = 0.05, 60.0  # until the next look at orphans that are nobody's: first, at most

TYPE_CHECKING = False
if TYPE_CHECKING:  # few launches want it
    from spawnlaunch.run.hang import HangHelp


class Running(NamedTuple):
    """A worker that was started and has not been reaped, so that its pid is its own."""

    worker: Worker
    pid: int
    pidfd: int | None
    since: float  # monotonic clock, seconds


class Place(NamedTuple):
    """Where the workers come from, and what they inherit from there."""

    group: int  # process group of the launcher, which a lone worker shares
    mask: frozenset[int]  # signal mask of the launcher when it was started


class Gang:
    """The workers of one launcher: the state of the decisions, and the processes behind it."""

    def __init__(self, options: Options, place: Place, tree: Tree, pipe: SignalPipe) -> None:
        self._options = options
        self._place = place
        self._tree = tree
        self._pipe = pipe
        self._turn_into: Callable[[Worker, Iterable[int]], NoReturn] = become
        self._loop = Loop()
        self._output = Output(self._loop, hears_all=options.hang.timeout_s > 0)
        self._hang_help: HangHelp | None = None
        if options.hang.is_wanted:
            from spawnlaunch.run import hang

            self._hang_help = hang.HangHelp(
                options.hang, self._loop, self._output, self._show, self.happened
            )
        self._by_rank: dict[int, Running] = {}
        self._ended: set[int] = set()  # pids of workers that are no more
        self._told: dict[int, int] = {}  # by rank, the last signal sent to end it
        self._outcomes: list[Outcome] = []
        self._again_s = AGAIN_S
        self.state = State(frozenset(), options.grace_s)

    def run(self, workers: Sequence[Worker]) -> Ending:
        """Start the workers and see them to their end; then others may be run."""
        self._ended, self._told, self._outcomes = set(), {}, []
        lone = len(workers) == 1 and not workers[0].own_session
        hang = self._options.hang
        self.state = State(
            frozenset(w.rank for w in workers),
            self._options.grace_s,
            lone,
            stack_signal=signal.SIGUSR2 if hang.stack_on_usr2 else 0,
            ends_hung=hang.ends,
        )
        self._start(workers)
        if self._hang_help:
            self._hang_help.begin(workers)
        self._loop.alarm(_import_the_rest, SETTLED_S)
        gc.enable()  # off while it costs a launch time, on while a launch lasts for days
        before = oom.count()
        while self.state.running:
            self._loop.turn()
        for call in (self._time_up, self._clear_again, _import_the_rest):
            self._loop.alarm(call, None)
        if self._hang_help:
            self._hang_help.cancel()
        return Ending(
            status=self.state.status,
            cause=self.state.cause,
            outcomes=tuple(self._outcomes),
            hostname=self._options.hostname,
            run_id=self._options.run_id,
            oom=oom.evidence(before, oom.count()) if self.state.status else None,
        )

    def end_after(self, seconds: float) -> None:
        """Bound the time of the launch, from now on."""
        self._loop.alarm(lambda: self.happened(decisions.TimedOut()), seconds)

    def is_told_to_end(self) -> bool:
        """Whether somebody has asked for the end of the launch, now that nobody runs.

        While the launch is stopped, that is not known.
        """
        self._loop.turn(0)
        while self.state.suspended and not self.state.told_to_end:
            self._loop.turn()
        return self.state.told_to_end

    def preload(self, modules: Sequence[str]) -> None:
        """Import modules once, for all workers. Raises UsageError where that cannot be."""
        if modules:
            from spawnlaunch.run import preload  # few launches want it

            self._turn_into = preload.worker_maker(modules)

    def kill(self) -> None:
        """SIGKILL for every worker that still runs, and for what is below it."""
        self._act(decisions.Kill(frozenset(self._by_rank)))

    def drain(self) -> None:
        """Write out what the workers have said, now that all have ended; at most for the grace."""
        deadline = time.monotonic() + self._options.grace_s
        while self._output.is_flowing and (left := deadline - time.monotonic()) > 0:
            self._loop.turn(left)
        for dropped in self._output.give_up():
            say(
                [
                    f"nobody read our {dropped.stream}: dropped the last {dropped.size} bytes that "
                    "workers wrote"
                ]
            )

    def say(self, lines: Sequence[str]) -> None:
        """Speak between the lines of the workers."""
        self._show(worded(lines))

    def _show(self, text: str) -> None:
        if not self._output.say(text):
            write(text)

    def happened(self, event: Event) -> None:
        """Decide about an event, and act."""
        self.state, actions = decisions.decide(self.state, event)
        for action in actions:
            self._act(action)

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

        self._loop.watch(self._pipe.fd, read)

    def watch_launcher(self, fd: int) -> None:
        """Take note of what the launcher passes on, and of its end."""

        def read() -> None:
            numbers = os.read(fd, 4096)
            for number in numbers:
                typed = bool(number & TYPED)
                signum = number & ~TYPED
                prompt = typed and signum == signal.SIGINT and self._prompt()
                self.happened(decisions.Signalled(signum, typed, prompt))
            if not numbers:
                self._loop.forget(fd)
                self.happened(decisions.LauncherGone())

        self._loop.watch(fd, read)

    def _time_up(self) -> None:
        self.happened(decisions.TimeUp(self._prompt()))

    def _prompt(self) -> bool:
        return self.state.lone and terminal.prompt_is_open()

    def _a_child_ended(self) -> None:
        """A worker, where the kernel has no pidfds; else an orphan that we have adopted."""
        for running in list(self._by_rank.values()):
            if running.pidfd is None:
                self._look_after(running)
        self._clear()

    def _look_after(self, running: Running) -> None:
        """Take note of the end of a worker, if it is one."""
        status = 0
        if running.pidfd is None:
            pid, status = os.waitpid(running.pid, os.WNOHANG)
            if not pid:
                return
        del self._by_rank[running.worker.rank]
        self._ended.add(running.pid)
        if running.worker.own_session:
            _signal_group(running.pid, signal.SIGKILL)
        self._clear(running.pid)
        if running.pidfd is not None:
            # Only now: while the zombie keeps its number, no other process can have it.
            _, status = os.waitpid(running.pid, 0)
            self._loop.forget(running.pidfd)
            os.close(running.pidfd)
        self._note(running.worker, running.pid, os.waitstatus_to_exitcode(status), running.since)

    def _clear(self, zombie: int = 0, again_s: float = AGAIN_S) -> None:
        """Kill what ended workers have left; a zombie's status is still to be asked for.

        While a process begins another program it shows no environment, and so seems to be nobody's.
        Such a one is looked at again, ever more rarely.
        """
        pids = {running.pid for running in self._by_rank.values()}
        nobodys = self._tree.clear(pids | {zombie}, self._by_rank.keys(), self._ended)
        self._again_s = again_s
        self._loop.alarm(self._clear_again, again_s if nobodys else None)

    def _clear_again(self) -> None:
        self._clear(again_s=min(2 * self._again_s, RARELY_S))

    def _note(self, worker: Worker, pid: int | None, code: int, since: float) -> None:
        self._outcomes.append(
            Outcome(
                rank=worker.rank,
                local_rank=worker.local_rank,
                pid=pid,
                code=code,
                after_s=time.monotonic() - since,
                told=self._told.get(worker.rank, 0),
                error_file=worker.environ.get("TORCHELASTIC_ERROR_FILE"),
                stderr=worker.routes.stderr.file,
                tail=self._output.tail(worker.rank) if code else None,
            )
        )
        self.happened(decisions.Exited(worker.rank, code))

    # Actions

    def _start(self, workers: Sequence[Worker]) -> None:
        """Fork the workers. Caught signals wait until all are there."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self._pipe.caught)
        parent = os.getpid()

        def prepare(worker: Worker) -> None:
            signals.default_in_child(self._pipe.caught)
            kernel.die_with_parent(parent)
            self._output.take()
            if not worker.own_session:
                _join(self._place.group)

        for i, worker in enumerate(workers):
            try:
                self._output.connect(worker)
                pid = start(worker, self._place.mask, prepare, self._turn_into)
                self._output.let_go()
            except OSError as error:  # no more processes, or no memory for one
                words = f"cannot start rank {worker.rank}: {error.strerror}"
                self.say([f"{words}; see ulimit -u, and the pids limit of the cgroup"])
                for missing in workers[i:]:
                    self._note(missing, None, os.EX_OSERR, time.monotonic())
                break
            running = Running(worker, pid, kernel.open_pidfd(pid), time.monotonic())
            self._by_rank[worker.rank] = running
            if running.pidfd is not None:
                self._loop.watch(running.pidfd, partial(self._look_after, running))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._pipe.caught)

    def _act(self, action: Action) -> None:
        match action:
            case decisions.Send(signum, ranks):
                self._send(signum, ranks)
            case decisions.Forward(signum, ranks):
                caught = (r for r in self._of(ranks) if catches(r.pid, signum))
                for running in caught:
                    os.kill(running.pid, signum)
            case decisions.Kill(ranks):
                self._tree.kill_below(running.pid for running in self._of(ranks))
                self._send(signal.SIGKILL, ranks)
            case decisions.TellStacks(ranks):
                if self._hang_help:
                    self._hang_help.tell_stacks((r.worker, r.pid) for r in self._of(ranks))
            case decisions.Deadline(after_s):
                self._loop.alarm(self._time_up, after_s)
            case decisions.Announce(what, number):
                from spawnlaunch.run import report  # most launches have nothing to report

                words = report.announced(what, number, self.state, self._outcomes, self._options)
                self.say([words])

    def _of(self, ranks: Iterable[int]) -> list[Running]:
        return [self._by_rank[rank] for rank in sorted(ranks) if rank in self._by_rank]

    def _send(self, signum: int, ranks: frozenset[int]) -> None:
        """SIGTERM is the worker's alone, all else is for its whole group.

        A DataLoader whose processes die of a SIGTERM of their own raises in the worker, which is
        about to save.
        """
        if signum in (signal.SIGTERM, signal.SIGKILL):
            self._told.update(dict.fromkeys(ranks, int(signum)))
        if self._hang_help and signum == signal.SIGCONT:
            self._hang_help.begin_anew()
        for running in self._of(ranks):
            group = running.worker.own_session and signum != signal.SIGTERM
            if not (group and _signal_group(running.pid, signum)):
                os.kill(running.pid, signum)


def _import_the_rest() -> None:
    """What the end will need, before somebody replaces what is installed."""
    import json  # noqa: F401

    from spawnlaunch.run import errorfile, report, result  # noqa: F401


def _join(group: int) -> None:
    with suppress(OSError):  # in another session, or ended: then there is no terminal to share
        os.setpgid(0, group)


def _signal_group(pid: int, signum: int) -> bool:
    """Signal the process group of a session's leader; False where it has not made one yet."""
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM where all are zombies
        return False
    return True
