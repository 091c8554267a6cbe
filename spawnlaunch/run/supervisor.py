"""Wait for events in one loop, and pass each of them to the decisions.

Events are the ends of workers, signals, times, and signals that the launcher passes on. `decisions`
decides the actions that follow, and calls this file or `processes`, which has the workers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial

from spawnlaunch import output
from spawnlaunch.base import errors, events, machine, signals
from spawnlaunch.base.signals import signal
from spawnlaunch.cli import flags
from spawnlaunch.node import cgroup, proc
from spawnlaunch.outcome import endings, failures
from spawnlaunch.run import decisions, processes
from spawnlaunch.run.tree import Tree, why_unkillable
from spawnlaunch.workers import launches, starting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from spawnlaunch.run import preload
    from spawnlaunch.run.observer import Observer

    MakeObserver: TypeAlias = Callable[["Supervisor"], Observer]


TYPED = 0x80  # added to the number of a signal that the terminal sent, in the launcher's pipe
ARE_YOU_THERE = 0  # it is to be read, and asks for nothing
SETTLED_S = 1.0  # in which the workers need the processors to start
REFUSED = ("failure", errors.WRONG_USE)  # the cause where a rank has met a wrong command line
ALIKE_S = 1.0  # in which all ranks meet a wrong command line that the first has met


class Supervisor:
    """The workers of one launch on this machine, with the decisions about them."""

    rules: decisions.Decisions  # of this attempt

    def __init__(
        self,
        launch: launches.Launch,
        tree: Tree,
        pipe: events.SignalPipe,
        observers: Sequence[MakeObserver] = (),
    ) -> None:
        request = launch.request
        self.launch, self.tree, self._pipe = launch, tree, pipe
        # Every grace is paused as long as the whole launch is stopped.
        self.loop = events.Loop(
            lambda: self.rules.is_suspended and self.rules.stage != decisions.KILLING
        )
        # The hub reports the last output of a worker alone on its node, and --record keeps it.
        self._is_of_several = launch.resolution.gathering is not None
        needs_output = self._is_of_several or bool(request.record)
        hears_all = request.hang_timeout_s > 0 or (needs_output and not machine.isatty(2))
        self.output = output.Output(self.loop, hears_all, is_debugged=request.debug is not None)
        self._processes = processes.Processes(
            launch, self.loop, self.output, tree, pipe.caught,
            is_well=lambda: self.rules.cause is None, on_exit=self._on_exit,
        )  # fmt: skip
        self._become: starting.BecomeWorker = starting.exec_worker
        self._image: preload.Image | None = None  # of --preload
        self.exits: list[failures.WorkerExit] = []
        self.kills_before: cgroup.MemoryKills | None = None
        self.has_begun = False  # some workers
        self._deferred_line = ""  # of a failure that all ranks may share
        self.rules = decisions.Decisions(self._processes, self)
        self._observers = [make(self) for make in observers]

    def add(self, observer: Observer) -> None:
        """Let the observer hear what happens from now on."""
        self._observers.append(observer)

    def drop(self, observer: Observer) -> None:
        """Let the observer hear nothing more."""
        self._observers.remove(observer)

    def run(self, workers: Sequence[launches.Worker]) -> failures.LaunchResult:
        """Start the workers and see them to their end; then `run` may be called again."""
        self.exits, self.has_begun = [], True
        request = self.launch.request
        self.rules = decisions.Decisions(
            self._processes,
            self,
            frozenset(each.rank for each in workers),
            self.launch.hostname,
            grace_s=self.launch.grace_s,
            failure_grace_s=self.launch.failure_grace_s,
            foreground=frozenset(each.rank for each in workers if not each.has_session),
            is_debugged=request.debug is not None,
            stack_signal=signal.SIGUSR2 if request.stack_on_usr2 else 0,
            # On several nodes the hub decides.
            ends_hung=request.on_hang == flags.KILL and not self._is_of_several,
        )
        self.kills_before = cgroup.memory_kills()
        self._processes.start(workers, self._become, self._image)
        for observer in self._observers:
            observer.began(workers, self._processes.by_rank)
        self.loop.alarm(self._settled, SETTLED_S)
        if not gc.isenabled():  # it is off while a launch starts; one may last for days
            gc.freeze()  # a look at all that there is would copy pages shared with the launcher
            gc.enable()
        while self.rules.running:
            self.loop.turn()
        for call in (self._time_up, self._settled, self._print_deferred):
            self.loop.alarm(call, None)
        for observer in self._observers:
            observer.ran()
        self._processes.finish()
        cause = self.rules.cause
        if cause is not None:
            return self._ended(cause)
        if self.tree.living():
            self.tree.let_end(self.launch.grace_s, self.look, self.output.say)
        return failures.LaunchResult(0, None, tuple(self.exits))

    def _ended(self, cause: failures.Cause) -> failures.LaunchResult:
        result = failures.LaunchResult(self.rules.status, cause, tuple(self.exits))
        if not result.status:
            return result
        why = endings.out_of_memory(self.kills_before, cgroup.memory_kills())
        first = result.first_failure
        well_s = max(exited.life_s for exited in self.exits)
        if first:
            well_s = first.failed_between[1] - first.started_at
        return result._replace(cause=cause._replace(oom=why, after_s=well_s))

    def _settled(self) -> None:
        """Publish the pids: the workers have started, so there is time for it."""
        self.output.publish(self.pids())

    def preload(self) -> tuple[int, str] | None:
        """Import the modules of --preload for all workers.

        The result is None, or status and message where the launch has ended by the import.
        Raises UsageError where the modules cannot be imported, or this process not be forked then.
        """
        if not self.tree.adopts:  # without subreapers this process is the image itself
            from spawnlaunch.run.preload import forked

            self._become = forked.worker_maker(self.launch)
            return None
        from spawnlaunch.run.preload import Image

        image = self._image = Image(self.launch, self._pipe.caught)
        self.tree.spared.add(image.pid)
        machine.pthread_sigmask(signal.SIG_UNBLOCK, self._pipe.caught)
        image.listen(self.loop, self.rules)
        return image.failure() if not self.rules.cause else (self.rules.status, "")

    def kill(self) -> None:
        """Send SIGKILL to every worker that still runs, and to all processes below it."""
        self._processes.kill(self.rules.running)

    def look(self, for_s: float) -> bool:
        """Handle events for `for_s` seconds; False: there is a cause to end the launch."""
        self.loop.turn(for_s)
        return self.rules.cause is None

    # Events

    def listen(self, launcher_pipe_fd: int | None = None) -> None:
        """Watch for signals to this process, and for those that the launcher passes on by its pipe.

        Without a pipe this process is the launcher.
        """
        self.loop.watch(self._pipe.fd, partial(self._read_signals, launcher_pipe_fd is not None))
        if launcher_pipe_fd is not None:
            read = partial(self._read_launcher, launcher_pipe_fd)
            self.loop.watch(launcher_pipe_fd, read)

    def _read_signals(self, is_guard: bool) -> None:
        """Handle the signals of this process; those that mean to end the job go to the rules."""
        for signum in self._pipe.read():
            if signum != signal.SIGCHLD:
                rules = self.rules
                self._signalled(rules.guard_signalled if is_guard else rules.signalled, signum)
            if signum == signal.SIGTSTP:
                machine.kill(machine.getpid(), signal.SIGSTOP)  # we are the launcher ourselves
        self._processes.look_at_children()

    def _read_launcher(self, launcher_pipe_fd: int) -> None:
        """Handle the signals that the launcher has got, and its end."""
        numbers = machine.read(launcher_pipe_fd, 4096)
        for number in numbers:
            if number == ARE_YOU_THERE:
                continue
            self._signalled(self.rules.signalled, number & ~TYPED, bool(number & TYPED))
        if not numbers:
            self.loop.forget(launcher_pipe_fd)
            events.arm_watchdog()
            self.rules.launcher_died()
            for observer in self._observers:
                observer.launcher_died()

    def _signalled(self, rule: Callable[..., None], signum: int, *more: bool) -> None:
        rule(signum, *more)
        for observer in self._observers if signum in signals.STOP else ():
            observer.end_requested(signum)

    def stacks_shown(self, report: Any) -> None:
        """Pass on that the workers' places were shown; `report` is the record for other nodes."""
        self.rules.stacks_shown()
        for observer in self._observers:
            observer.stacks_shown(report)

    def stopped(self) -> dict[int, int]:
        """The pids of workers that a signal has stopped, by their ranks."""
        return {rank: pid for rank, pid in self.pids().items() if proc.is_stopped(pid)}

    def pids(self) -> dict[int, int]:
        """The pids of the workers that run, by their ranks."""
        return {rank: running.pid for rank, running in self._processes.by_rank.items()}

    def _time_up(self) -> None:
        self._processes.reap_dead()  # a worker that has ended does not run any more
        if not self.rules.running:
            return
        running = self._processes.by_rank.items() if self.rules.stage == decisions.KILLING else ()
        stay = frozenset(rank for rank, each in running if why_unkillable(each.pid))
        self.rules.time_up(stay)

    def _on_exit(self, exited: failures.WorkerExit) -> None:
        self.exits.append(exited)
        for observer in self._observers:
            observer.exited(exited)
        self.rules.exited(exited.rank, exited.code, exited.pid)
        # The failure of a worker alone is the first, without looking for evidence.
        if exited.code and (self.exits[1:] or self.rules.running or self._is_of_several):
            host = self.launch.hostname
            self.exits[-1], failure = endings.judged(exited, host, self.kills_before)
            if failure:
                self.rules.failed(failure)
                for observer in self._observers:
                    observer.failed(failure)

    # Actions that the decisions ask for

    def set_deadline(self, after_s: float | None) -> None:
        self.loop.alarm(self._time_up, after_s)

    def announce(self, event: failures.Cause | str) -> None:
        rules = self.rules
        words = endings.announced(
            event, sorted(rules.running), self.launch, rules.announced_grace_s
        )
        if not isinstance(event, str) and (event.kind, event.code) == REFUSED:
            self._deferred_line = words  # if all ranks meet it, one line of the report says so
            self.loop.alarm(self._print_deferred, ALIKE_S)
        else:
            self.output.say([words])
        self.note("said", what=event if isinstance(event, str) else event.kind, words=words)

    def note(self, kind: str, **values: object) -> None:
        """Pass on to the observers what the launcher says about the launch."""
        for observer in self._observers:
            observer.noted(kind, **values)

    def _print_deferred(self) -> None:
        self.output.say([self._deferred_line])

    def show_stacks(self, ranks: frozenset[int], is_silent: bool = False) -> None:
        heading = ""
        if is_silent:
            heading = endings.silence(self.stopped(), self.launch)
            self.note("said", what="silent", words=heading)
        running = [(each.worker, each.pid) for each in self._processes.of(ranks)]
        for observer in self._observers:
            observer.stacks_wanted(running, heading)

    def resumed(self) -> None:
        for observer in self._observers:
            observer.resumed()

    def silent(self, is_silent: bool) -> None:
        """Pass on whether all workers are silent."""
        for observer in self._observers:
            observer.silent(is_silent)

    def compare(self, reports: Sequence[Any], world_size: int) -> None:
        """Have the observers compare what all nodes have reported of their workers."""
        for observer in self._observers:
            observer.compared(reports, world_size)

    def end(self, result: failures.LaunchResult) -> None:
        """Tell the observers that the launch has ended."""
        for observer in self._observers:
            observer.ended(result, self.is_end_requested)

    def is_end_requested(self) -> bool:
        """Whether a signal or a time limit has asked for the end of the attempt that runs now."""
        return self.rules.is_end_requested
