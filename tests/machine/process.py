"""Processes of a simulated Linux: their signals, what they do, and their ends."""

from __future__ import annotations

import errno
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from greenlet import GreenletExit, greenlet

from tests.machine.descriptors import Description, SignalFd
from tests.machine.errors import refused

if TYPE_CHECKING:
    from tests.machine.node import Node

TERM, CORE, STOP, IGNORE, CONT = "term", "core", "stop", "ignore", "cont"  # signal(7)
CORES = frozenset({3, 4, 5, 6, 7, 8, 11, 24, 25, 31})
STOPS = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
IGNORED = frozenset({signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH})
NEVER = frozenset({signal.SIGKILL, signal.SIGSTOP})  # neither caught, blocked nor ignored

READY, BLOCKED, ZOMBIE, GONE = "ready", "blocked", "zombie", "gone"

SI_USER, SI_KERNEL = 0, 0x80  # si_code, sigaction(2)
CLD_EXITED, CLD_KILLED, CLD_DUMPED, CLD_STOPPED, CLD_CONTINUED = 1, 2, 3, 5, 6  # waitid(2)


class Info(NamedTuple):
    """What came with a signal (siginfo_t)."""

    si_signo: int
    si_code: int = SI_USER
    si_pid: int = 0


class Sent(NamedTuple):
    """A signal that one process has sent to another."""

    when: float
    sender: Process
    to: Process
    signum: int


def default_action(signum: int) -> str:
    """What a signal does that a process has said nothing about (signal(7))."""
    if signum in STOPS:
        return STOP
    if signum in IGNORED:
        return IGNORE
    if signum == signal.SIGCONT:
        return CONT
    return CORE if signum in CORES else TERM


class Process:
    """A process of one node: what the kernel knows of it."""

    def __init__(self, node: Node, pid: int, parent: Process | None) -> None:
        self.node, self.kernel, self.pid, self.parent = node, node.kernel, pid, parent
        self.children: list[Process] = []
        self.state, self.stopped = READY, False
        self.start = self.kernel.now
        self.fds: dict[int, tuple[Description, bool]] = {}  # with whether it is inherited by exec
        self.handlers: dict[int, Any] = {}  # by signal: SIG_IGN, or a function; else the default
        self.blocked: frozenset[int] = frozenset()
        self.pending: dict[int, Info] = {}
        self.wakeup_fd = -1
        self.signalfds: list[SignalFd] = []
        self.has_thread = False  # beside its first, in which no signal is blocked
        self.taken: list[int] = []  # signals that came to that one
        self.held = self.was_held = False  # it cannot run, but for dying of SIGKILL
        self.awake = True  # something that it waits for may have happened
        self.death_signal = 0
        self.is_subreaper = False
        self.group, self.session = pid, pid
        self.uid = 0
        self.comm, self.command, self.environ = "python", ["python"], {}
        self.cwd, self.umask = "/", 0o022
        self.code: int | None = None  # as subprocess has it, once it has ended
        self.dumped, self.ended = False, 0.0
        self.dying: float | None = None  # since when it has been about to end
        self.died_of = 0  # the signal that began it
        self.is_of_memory = False  # it was killed as memory ran out
        self.player: Any = None  # of a script
        self.is_ours = False  # its program is the launcher
        self.core_until: float | None = None  # it writes its core until then
        self.is_exiting = False  # it will not be waited for before it has given its memory back
        self._lost: list[tuple[float, float]] = []  # from when to when it could not run
        self.stopped_at = 0.0
        self.uncounted_s, self.alarms = 0.0, 0  # as it was told by `exclude`; setitimer(2)
        self.remembered: dict[object, bool] = dict(parent.remembered) if parent else {}
        self.told_stop: int | None = None  # a stop that its parent has not waited for yet
        self.told_cont = False
        self.greenlet: greenlet | None = None
        self.tracer = 0
        self.files_most = 1024
        if parent:
            self.group, self.session = parent.group, parent.session
            self.is_ours, self.uncounted_s = parent.is_ours, parent.uncounted_s
            self.handlers, self.blocked = dict(parent.handlers), parent.blocked
            self.wakeup_fd = parent.wakeup_fd
            self.comm, self.command = parent.comm, list(parent.command)
            self.environ, self.uid = dict(parent.environ), parent.uid
            self.cwd, self.umask, self.files_most = parent.cwd, parent.umask, parent.files_most
            for fd, (what, kept) in parent.fds.items():
                self.fds[fd] = what.held(), kept
            parent.children.append(self)

    def __repr__(self) -> str:
        return f"{self.node.name}:{self.pid}"

    def lose(self, since: float) -> None:
        """It could not run from then on until now: it was stopped, or all was."""
        self._lost.append((since, self.kernel.now))

    def could_run_s(self, since: float, until: float) -> float:
        """Of this time, as far as it is over: in which it was not stopped, nor was all."""
        stopped = [(self.stopped_at, self.kernel.now)] * self.stopped
        ran_s = 0.0
        for began, end in sorted((*self._lost, *stopped)):  # of which some overlap
            ran_s += max(0.0, min(began, until) - since)
            since = max(since, end)
        return ran_s + max(0.0, until - since)

    @property
    def is_alive(self) -> bool:
        return self.code is None

    # Descriptors

    def free(self) -> int:
        """The lowest free number. Raises OSError: there is none."""
        fd = 0
        while fd in self.fds:
            fd += 1
        if fd >= self.files_most:
            raise refused(errno.EMFILE)
        return fd

    def put(self, what: Description, inherited: bool = False) -> int:
        """The lowest free number, for a new description (open(2))."""
        try:
            fd = self.free()
        except OSError:
            what.release()
            raise
        self.fds[fd] = what, inherited
        return fd

    def at(self, fd: int) -> Description:
        if fd not in self.fds:
            raise refused(errno.EBADF)
        return self.fds[fd][0]

    def shut(self, fd: int) -> None:
        what = self.at(fd)
        del self.fds[fd]
        what.release()

    # Signals

    def broken_pipe(self) -> None:
        """SIGPIPE, for writing to a pipe that nobody reads."""
        self.get_signal(signal.SIGPIPE, Info(signal.SIGPIPE, SI_KERNEL))
        self.deliver()

    def get_signal(self, signum: int, info: Info) -> None:
        """A signal for this process; one that is there already is not there twice (signal(7))."""
        if not self.is_alive or self.is_exiting:
            return
        if signum == signal.SIGKILL:
            self.pending[signum] = info
            self.core_until = None
            self._go_on()
            if self.held:
                self.held = False
                self.kernel.ready += [self] * (self.state == READY)
            self.wake()
            return
        if self.core_until is not None:
            return
        if signum == signal.SIGCONT:
            for each in STOPS:
                self.pending.pop(each, None)
            self._go_on()
        elif signum in STOPS:
            self.pending.pop(signal.SIGCONT, None)
        if signum not in self.blocked and self.ignores(signum):
            return
        if self.has_thread and signum in self.blocked and self.kernel.random.random() < 0.5:
            self.taken.append(signum)
            if callable(self.handlers.get(signum)):
                self._tell_wakeup_fd(signum)
            self.wake()
            return
        self.pending.setdefault(signum, info)
        if signum not in self.blocked:
            self.wake()
        for each in self.signalfds:
            if signum in each.signums:
                each.touch()

    def ignores(self, signum: int, by_choice: bool = False) -> bool:
        handler = self.handlers.get(signum, signal.SIG_DFL)
        if handler == signal.SIG_IGN or by_choice:
            return bool(handler == signal.SIG_IGN)
        return handler == signal.SIG_DFL and default_action(signum) in (IGNORE, CONT)

    def _go_on(self) -> None:
        if self.stopped:
            self.stopped = False
            self.lose(self.stopped_at)
            self.kernel.note(self, "goes on")
            self.told_stop, self.told_cont = None, True
            self._tell_parent(CLD_CONTINUED)
            if self.state == READY:
                self.kernel.ready.append(self)

    def wake(self) -> None:
        """Look again whether what it waits for is there."""
        self.awake = True
        if self.state == BLOCKED and self.greenlet is not None:
            self.state = READY
            if not (self.stopped or self.held):
                self.kernel.ready.append(self)

    def deliver(self) -> None:
        """What is pending takes effect: called in the process itself, between two steps of it.

        Python runs its handlers when all is delivered, by the numbers of their signals.
        """
        caught: list[int] = []
        while self.taken:
            signum = self.taken.pop()
            if callable(self.handlers.get(signum)):
                caught.append(signum)
            else:
                self._take(signum)
        while self.pending or self.stopped:
            if self.stopped:
                self.kernel.switch_away(self)
                continue
            signum = next((n for n in sorted(self.pending) if n in NEVER), None)
            if signum is None:
                open_to = (n for n in sorted(self.pending) if n not in self.blocked)
                signum = next(open_to, None)
            if signum is None:
                break
            del self.pending[signum]
            if callable(self.handlers.get(signum)):
                caught.append(signum)
                self._tell_wakeup_fd(signum)
            else:
                self._take(signum)
        self._handle(caught)

    def _tell_wakeup_fd(self, signum: int) -> None:
        if self.wakeup_fd >= 0 and self.wakeup_fd in self.fds:
            with suppress(OSError):  # it is full: warn_on_full_buffer is False
                self.fds[self.wakeup_fd][0].write(self, bytes([signum]))

    def _handle(self, caught: list[int]) -> None:
        """Call the handlers; where one raises, the others are called later."""
        left = sorted(caught)
        try:
            while left:
                handler = self.handlers.get(signum := left.pop(0))
                if callable(handler):  # an earlier one may have changed it
                    handler(signum, None)
        finally:
            self.pending |= {each: Info(each) for each in left}

    def _take(self, signum: int) -> None:
        if self.ignores(signum):
            return
        if default_action(signum) == STOP:
            if signum != signal.SIGSTOP and self.node.is_orphaned(self.group):
                return  # nobody could continue it (setpgid(2))
            self.stop(signum)
        else:
            self.die(signum)

    def stop(self, signum: int) -> None:
        if self.stopped:
            return
        self.stopped, self.told_stop, self.told_cont = True, signum, False
        self.stopped_at = self.kernel.now
        self.kernel.note(self, f"is stopped by signal {signum}")
        self._tell_parent(CLD_STOPPED)

    def die(self, signum: int) -> None:
        """Death by a signal; writing a core takes its time, as long as nobody kills it."""
        self.dying, self.died_of = self.kernel.now, signum
        self.kernel.deaths.touch()
        takes_s = self.node.core_s if default_action(signum) == CORE else 0.0
        if takes_s:
            self.core_until = self.kernel.now + takes_s
            self.kernel.note(self, f"dumps its core, for {takes_s:.3f} s")
            self.kernel.at(self.core_until, self.wake)
            while self.core_until is not None and self.kernel.now < self.core_until:
                self.state = BLOCKED
                self.kernel.switch_away(self)
            if self.core_until is None:
                signum = signal.SIGKILL
            self.dumped = self.core_until is not None
        if self.node.free_s and not self.is_ours:  # nothing hurries it now
            self.is_exiting = True
            self.kernel.note(self, f"gives its memory back, for {self.node.free_s:.3f} s")
            since = self.kernel.now
            # That is work, which stands as all does.
            while (left_s := self.node.free_s - self.could_run_s(since, self.kernel.now)) > 1e-9:
                self.kernel.later(left_s, self.wake)
                self.state = BLOCKED
                self.kernel.switch_away(self)
        self.end(-signum)

    # The end

    def end(self, code: int) -> None:
        """End this process, which is the one that runs: it does not come back from here."""
        self.finish(code)
        raise GreenletExit

    def finish(self, code: int) -> None:
        """Close its descriptors, hand on its children, and become a zombie (exit in the kernel)."""
        self.code, self.ended = code, self.kernel.now
        self.dying = self.kernel.now if self.dying is None else self.dying
        self.kernel.deaths.touch()
        for fd in list(self.fds):
            self.shut(fd)
        self.kernel.pause(self)  # others may see the closed descriptors before the end
        self.kernel.now += 1e-7  # no two end at the same time
        self.state, self.ended = ZOMBIE, self.kernel.now
        self.kernel.note(self, f"ends with {code}")
        if self.player:
            self.kernel.passes("ended")
        self._hand_on_children()
        self._hang_up()
        self.node.told_of_end(self)
        parent = self.parent
        self._tell_parent(CLD_EXITED if code >= 0 else CLD_DUMPED if self.dumped else CLD_KILLED)
        if parent is self.node.init or (parent and parent.ignores(signal.SIGCHLD, by_choice=True)):
            self.node.forget(self)

    def _hand_on_children(self) -> None:
        before = {child.group for child in self.children if child.session == self.session}
        alone = {group for group in before | {self.group} if self.node.is_orphaned(group)}
        heir = self.node.reaper_of(self)
        for child in self.children:
            child.parent = heir
            heir.children.append(child)
            if child.death_signal and child.is_alive:
                child.get_signal(child.death_signal, Info(child.death_signal, SI_USER, self.pid))
            if child.state == ZOMBIE:
                child._tell_parent(CLD_EXITED)
                heir.wake()
        self.children = []
        for group in (before | {self.group}) - alone:
            self.node.hang_up_if_orphaned(group)

    def _hang_up(self) -> None:
        """A session leader with a terminal ends (setsid(2), tty_ioctl(4)): its foreground dies."""
        terminal = self.node.terminals.get(self.session)
        if terminal is not None and self.pid == self.session:
            del self.node.terminals[self.session]
            for signum in (signal.SIGHUP, signal.SIGCONT):
                self.node.signal_group(terminal, signum, Info(signum, SI_KERNEL))

    def _tell_parent(self, code: int) -> None:
        if self.parent is not None:
            info = Info(signal.SIGCHLD, code, self.pid)
            self.parent.get_signal(signal.SIGCHLD, info)
            self.parent.wake()
