"""Wait for events, in one loop, and do what is decided about each.

Events are the ends of workers, signals, times, and what the launcher passes on. `decisions` decides
what follows from one. `processes` has the workers themselves.
"""

from __future__ import annotations

import gc
import os

from spawnlaunch.node import kernel
from spawnlaunch.node.cgroup import memory_kills
from spawnlaunch.reading import file_text
from spawnlaunch.run import decisions
from spawnlaunch.run.decisions import State
from spawnlaunch.run.loop import Loop
from spawnlaunch.run.model import LaunchResult
from spawnlaunch.run.output import Output
from spawnlaunch.run.processes import Processes
from spawnlaunch.run.signals import signal
from spawnlaunch.run.tree import why_it_stays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spawnlaunch.node.cgroup import MemoryKills
    from spawnlaunch.run.decisions import Action, Event
    from spawnlaunch.run.hang import HangHelp
    from spawnlaunch.run.journal import Journal
    from spawnlaunch.run.loop import SignalPipe
    from spawnlaunch.run.model import Launch, Worker, WorkerExit
    from spawnlaunch.run.tree import Tree

TYPED = 0x80  # added to the number of a signal that the terminal sent, in the launcher's pipe
SETTLED_S = 1.0  # in which the workers need the processors to start


class Supervisor:
    """The workers of one launch on this machine, and the state of the decisions about them."""

    def __init__(self, launch: Launch, tree: Tree, pipe: SignalPipe) -> None:
        request = launch.request
        self.launch, self.tree, self._pipe = launch, tree, pipe
        self.loop = Loop()
        # The hub tells what a worker alone on another node said last.
        is_told = launch.resolution.gathering is not None and not os.isatty(2)
        self.output = Output(self.loop, hears_all=request.hang_timeout_s > 0 or is_told)
        self.journal: Journal | None = None  # of --record
        if launch.journal is not None:
            from spawnlaunch.run.journal import Journal

            self.journal = Journal(launch.journal, launch.hostname)
        self.hang_help: HangHelp | None = None
        if request.hang_timeout_s or request.stack_on_usr2:
            from spawnlaunch.run import hang

            self.hang_help = hang.HangHelp(
                launch, self.loop, self.output, self.happened, self.journal
            )
        self._processes = Processes(
            launch,
            self.loop,
            self.output,
            tree,
            pipe.caught,
            is_well=lambda: self.state.cause is None,
            on_exit=self._on_exit,
        )
        self.exits: list[WorkerExit] = []
        self.kills_before: MemoryKills | None = None
        self._is_looked_at = False  # the script
        self.state = State(frozenset(), launch.grace_s)
        # Told of each event after it was decided about: of the launchers of several nodes.
        self.listener: Callable[[Event], None] | None = None

    def run(self, workers: Sequence[Worker]) -> LaunchResult:
        """Start the workers and see them to their end; then others may be run."""
        self.exits = []
        request, running = self.launch.request, self._processes.by_rank
        self.state = State(
            frozenset(worker.rank for worker in workers),
            self.launch.grace_s,
            self.launch.failure_grace_s,
            lone=len(workers) == 1 and not workers[0].own_session,
            stack_signal=signal.SIGUSR2 if request.stack_on_usr2 else 0,
            ends_hung=request.on_hang == "kill" and not self.listener,  # else all nodes' say
            foreground=frozenset(worker.rank for worker in workers if not worker.own_session),
        )
        if len(workers) > 1 and kernel.IS_LINUX and os.isatty(0) and not self.output.keyboard:
            from spawnlaunch.run.keyboard import Keyboard

            say, sinks, debugged = self.output.say, self.output.sinks, request.debug
            self.output.keyboard = Keyboard(self.loop, sinks, say, running, debugged)
        self._processes.start(workers)
        if self.hang_help:
            self.hang_help.begin(workers)
        if self.journal:
            self.journal.began(workers, running.values())
        self._look_at_script()
        self.loop.alarm(self._settled, SETTLED_S)
        if not gc.isenabled():  # it is off while a launch starts; one may last for days
            gc.freeze()  # a look at all that there is would copy pages shared with the launcher
            gc.enable()
        self.kills_before = memory_kills()
        while self.state.running:
            self.loop.turn()
        self.loop.alarm(self._time_up, None)
        self.loop.alarm(self._settled, None)
        if self.hang_help:
            self.hang_help.cancel()
        self._processes.finish()
        state, exits = self.state, tuple(self.exits)
        if not state.status:
            return LaunchResult(0, state.cause, exits)
        from spawnlaunch.run import report  # most launches have nothing to report

        why = report.out_of_memory(self.kills_before, memory_kills())
        return LaunchResult(state.status, state.cause, exits, why)

    def _settled(self) -> None:
        """The workers have started: now there is time for what is not needed at once."""
        pids = {rank: one.pid for rank, one in self._processes.by_rank.items()}
        self.output.publish(pids)
        _import_the_rest()

    def _look_at_script(self) -> None:
        """Say it where a script expects its local rank as an argument, and is given none.

        The workers are about to read it too.
        """
        request = self.launch.request
        program = request.program
        if len(self._processes.by_rank) < 2 or program.kind != "script" or self._is_looked_at:
            return
        self._is_looked_at = True
        text = file_text(program.target) or ""
        if "local_rank" in text or "local-rank" in text:
            from spawnlaunch.torchrun import local_rank

            self.output.say(local_rank.advice(request, text))

    def listen_for_end(self) -> bool:
        """Handle what has come in; True: somebody has asked for the end of the launch.

        Nobody runs now. While the launch is stopped, this waits until it goes on or is to end.
        """
        self.loop.turn(0)
        while self.state.suspended and not self.state.told_later:
            self.loop.turn()
        return self.state.told_later

    def preload(self) -> tuple[int, str] | None:
        """Import the modules of --preload for all workers.

        The result is status and words of a launch that has ended by that; None: it goes on.
        Raises UsageError where they cannot be imported, or not be forked then.
        """
        if not kernel.IS_LINUX:  # without subreapers this process is the image itself
            from spawnlaunch.run.preload import forked

            self._processes.become = forked.worker_maker(self.launch.request.preload)
            return None
        from spawnlaunch.run.preload import Image

        image = self._processes.image = Image(self.launch, self._pipe.caught)
        self.tree.kept.add(image.pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._pipe.caught)
        image.listen(self.loop, lambda: self.state)
        return image.failure() if not self.state.cause else (self.state.status, "")

    def kill(self) -> None:
        """SIGKILL for every worker that still runs, and for what is below it."""
        self._processes.kill(frozenset(self._processes.by_rank))

    def look(self, for_s: float) -> bool:
        """Take note of what happens for a moment; False: somebody wants an end of the launch."""
        self.loop.turn(for_s)
        return not self.state.was_told_to_end

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
            self._processes.a_child_ended()

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
        running = self._processes.by_rank.items() if killing else ()
        stay = frozenset(rank for rank, one in running if why_it_stays(one.pid))
        self.happened(decisions.TimeUp(self._prompt(), stay))

    def _prompt(self) -> bool:
        if not self.state.lone:
            return False
        from spawnlaunch.run.keyboard import prompt_is_open

        return prompt_is_open()

    def _on_exit(self, one: WorkerExit) -> None:
        self.exits.append(one)
        if self.journal:
            self.journal.ended(one)
        self.happened(decisions.Exited(one.rank, one.code))

    # Actions

    def _act(self, action: Action) -> None:
        match action:
            case decisions.Send(signum, ranks):
                if self.hang_help and signum == signal.SIGCONT:
                    self.hang_help.begin_anew()
                self._processes.send(signum, ranks)
            case decisions.Forward(signum, ranks):
                self._processes.forward(signum, ranks)
            case decisions.Kill(ranks):
                self._processes.kill(ranks)
            case decisions.Leave(ranks):
                self._processes.leave(ranks)
            case decisions.TellStacks(ranks):
                if self.hang_help:
                    running = self._processes.of(ranks)
                    self.hang_help.stacks.tell((one.worker, one.pid) for one in running)
            case decisions.Deadline(after_s):
                self.loop.alarm(self._time_up, after_s)
            case decisions.Announce(what, number):
                self._announce(what, number)

    def _announce(self, what: str, number: int) -> None:
        from spawnlaunch.run import report  # most launches have nothing to report

        words = report.announced(what, number, self.state, self.exits, self.launch)
        self.output.say([words])
        if self.journal:
            self.journal.tell("said", what=what, words=words)


def _import_the_rest() -> None:
    """What the end will need, before somebody replaces what is installed."""
    import json  # noqa: F401
    import re  # noqa: F401

    from spawnlaunch.run import report  # noqa: F401
