"""Time, processes and signals of a simulated Linux.

Each process is a greenlet, which runs only while the scheduler has switched to it: one seed, one
order of events. It calls the kernel through the door; each call takes a little time, may be where
another process goes on, and is where signals are delivered. What happens later stands in a heap.

Sources: the manual pages of section 2 and 7 that are named where it matters, and the behaviour of
Linux itself, to which tests/machine/conformance.py compares this.
"""

from __future__ import annotations

import errno
import heapq
import os
import random
import signal
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from greenlet import GreenletExit, getcurrent, greenlet

from tests.machine.descriptors import Description, Null, Pidfd
from tests.machine.network import Network

TERM, CORE, STOP, IGNORE, CONT = "term", "core", "stop", "ignore", "cont"  # signal(7)
CORES = frozenset({3, 4, 5, 6, 7, 8, 11, 24, 25, 31})
STOPS = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
IGNORED = frozenset({signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH})
NEVER = frozenset({signal.SIGKILL, signal.SIGSTOP})  # neither caught, blocked nor ignored

READY, BLOCKED, ZOMBIE, GONE = "ready", "blocked", "zombie", "gone"

MOST_CALLS = 400_000  # of all processes of a scenario
SI_USER, SI_KERNEL = 0, 0x80  # si_code, sigaction(2)
CLD_EXITED, CLD_KILLED, CLD_DUMPED, CLD_STOPPED, CLD_CONTINUED = 1, 2, 3, 5, 6  # waitid(2)


class Refused(NamedTuple):
    """A call of ours that the system refuses: with an error, from when and until when.

    And not before it was made so many times.
    """

    call: str
    error: int
    since: float
    until: float
    after: int = 0


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


def refused(number: int, path: str | None = None) -> OSError:
    """The error of a call, as Python has it: BlockingIOError and the like by its number."""
    words = os.strerror(number)
    return OSError(number, words) if path is None else OSError(number, words, path)


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
        self.waits_for: frozenset[int] = frozenset()  # of sigtimedwait(2)
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
        self.uncounted_s, self.alarms = 0.0, 0  # as it was told by `lose`; setitimer(2)
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
        self.pending.setdefault(signum, info)
        if signum not in self.blocked or signum in self.waits_for:
            self.wake()

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
            if not self.stopped:
                self.kernel.ready.append(self)

    def deliver(self) -> None:
        """What is pending takes effect: called in the process itself, between two steps of it.

        Python runs its handlers when all is delivered, by the numbers of their signals.
        """
        caught: list[int] = []
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
                if self.wakeup_fd >= 0 and self.wakeup_fd in self.fds:
                    with suppress(OSError):  # it is full: warn_on_full_buffer is False
                        self.fds[self.wakeup_fd][0].write(self, bytes([signum]))
            else:
                self._take(signum)
        self._handle(caught)

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


class Node:
    """One machine: its processes and their numbers, its files, its terminal's groups."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        from tests.machine.files import Files

        self.kernel, self.name = kernel, name
        self.processes: dict[int, Process] = {}
        self.last_pid, self.most_pids, self.most_processes = 0, 32768, 1000
        self.files_hard = 4096
        self.core_s, self.free_s = 0.0, 0.0
        self.files = Files()
        self.terminals: dict[int, int] = {}  # by session, its foreground group
        self.pidfds: dict[int, list[Pidfd]] = {}
        self.network: Network = kernel.network
        self.sockets: set[Any] = set()  # names of those that only hold them
        self.is_down, self.is_frozen = False, False
        self.oom_kills: int | None = None  # None: there are no control groups
        self.all: list[Process] = []  # that there ever were
        self.programs: Callable[[Process], Callable[[Process], int]] | None = None
        kernel.nodes.append(self)
        self.address = f"10.0.0.{len(kernel.nodes)}"
        kernel.network.join(self, self.address)
        self.init = self._new(None)
        self.init.comm = "init"
        self.init.state = BLOCKED

    def _new(self, parent: Process | None) -> Process:
        pid = self.last_pid
        while True:
            pid = pid % self.most_pids + 1
            groups = {p.group for p in self.processes.values()}
            if pid not in self.processes and pid not in groups:
                break
            if pid == self.last_pid:
                raise refused(errno.EAGAIN)
        self.last_pid = pid
        process = self.processes[pid] = Process(self, pid, parent)
        self.all.append(process)
        return process

    def start(
        self, main: Callable[[Process], int | None], parent: Process | None = None
    ) -> Process:
        """A process that runs `main`, whose result is its exit status."""
        process = self._new(parent or self.init)

        def run() -> None:
            try:
                process.deliver()
                status = main(process)
                process.finish(status or 0)
            except GreenletExit:
                pass
            except Exception:  # as Python ends then; nobody should come to see it
                self.kernel.tracebacks.append(traceback.format_exc())
                with suppress(GreenletExit):
                    process.finish(1)
            finally:
                self.kernel.leave(process)

        process.greenlet = greenlet(run, self.kernel.hub)
        self.kernel.ready.append(process)
        return process

    def reaper_of(self, process: Process) -> Process:
        """Who gets its orphans (prctl(2), PR_SET_CHILD_SUBREAPER)."""
        above = process.parent
        while above is not None and above is not self.init:
            if above.is_subreaper and above.is_alive:
                return above
            above = above.parent
        return self.init

    def told_of_end(self, process: Process) -> None:
        for pidfd in self.pidfds.get(process.pid, ()):
            pidfd.touch()

    def forget(self, process: Process) -> None:
        """It has been waited for: its number is free."""
        process.state = GONE
        if process.parent is not None and process in process.parent.children:
            process.parent.children.remove(process)
        if self.processes.get(process.pid) is process:
            del self.processes[process.pid]
        self.pidfds.pop(process.pid, None)

    def lose_power(self) -> None:
        """All of its processes are gone, and nobody is told."""
        self.is_down = True
        self.kernel.note(self.name, "loses its power")
        for process in self.processes.values():
            if process.code is None:
                process.code, process.ended, process.state = -signal.SIGKILL, self.kernel.now, GONE
            self.kernel.leave(process)
        for connection in list(self.network.connections):
            connection.watch_for_silence()

    def count_memory_kills(self, number: int) -> None:
        """As the kernel does in the control group of a launch (cgroup-v2.rst, memory.events)."""
        self.oom_kills = number
        self.files.write("/sys/fs/cgroup/job/memory.events", f"oom_kill {number}\n".encode())

    def run_out_of_memory(self, process: Process) -> None:
        """The kernel kills a process, and counts it; one that gives its memory back is spared."""
        if process.is_exiting:
            return
        self.count_memory_kills((self.oom_kills or 0) + 1)
        process.is_of_memory = True
        process.get_signal(signal.SIGKILL, Info(signal.SIGKILL, SI_KERNEL))

    def lose(self, since: float) -> None:
        """Its processes could not run since then; what is stopped is counted by itself."""
        for process in self.processes.values():
            if not process.stopped:
                process.lose(since)

    def members(self, group: int) -> list[Process]:
        return [p for p in self.processes.values() if p.group == group and p.state != GONE]

    def signal_group(self, group: int, signum: int, info: Info) -> bool:
        found = self.members(group)
        for process in found:
            process.get_signal(signum, info)
        return bool(found)

    def is_orphaned(self, group: int) -> bool:
        """No member has a parent in the same session and another group (setpgid(2))."""
        return not any(
            p.parent is not None
            and p.parent is not self.init
            and p.parent.session == p.session
            and p.parent.group != group
            and p.state != ZOMBIE
            for p in self.members(group)
        )

    def hang_up_if_orphaned(self, group: int) -> None:
        alive = [p for p in self.members(group) if p.is_alive]
        if any(p.stopped for p in alive) and self.is_orphaned(group):
            for signum in (signal.SIGHUP, signal.SIGCONT):
                self.signal_group(group, signum, Info(signum, SI_KERNEL))


class Kernel:
    """The clock and the scheduler of all nodes.

    `restless` is how often a call is where another process goes on, of 1.
    """

    CALL_S = 2e-5  # that a call takes, at most

    def __init__(self, seed: int, restless: float = 0.2, trace: bool = False) -> None:
        self.random = random.Random(seed)
        self._chance = self.random.random
        self.now, self.wall = 1000.0, 1.7e9  # the wall clock is ahead by so much
        self.restless = restless
        self.nodes: list[Node] = []
        self.network = Network(self)
        self.ready: list[Process] = []
        self.current: Process | None = None
        self.hub = getcurrent()
        self.is_over = False
        self.calls = 0
        self.refused: Refused | None = None
        self._made = 0  # how often the call was made that is to be refused
        self.call_s = self.CALL_S
        self.deaths = Description()  # of which somebody begins to die
        self.spins = False  # there were more calls than a launch can need
        self.tracebacks: list[str] = []
        self.is_traced = trace
        self.trace: list[str] = []
        self.signals: list[Sent] = []  # all that processes have sent to others
        self._heap: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = 0
        self._awaited: dict[str, list[Callable[[], Any]]] = {}
        self._past: set[str] = set()

    def note(self, who: object, what: str) -> None:
        if self.is_traced:
            self.trace.append(f"{self.now - 1000.0:11.6f}  {who!s:>10}  {what}")

    def freeze(self, for_s: float) -> None:
        """Nobody runs for so long, and nothing is told of it: a freezer, a suspended machine."""
        self.note("machine", f"stands still for {for_s:.3f} s")
        self.now += for_s
        for node in self.nodes:
            if not node.is_frozen:  # else it is counted as that ends
                node.lose(self.now - for_s)

    def freeze_node(self, node: Node, for_s: float) -> None:
        """Nobody runs there for so long: the cgroup of a launch, a paused container."""
        if node.is_frozen:
            return
        node.is_frozen = True
        self.note(node.name, f"stands still for {for_s:.3f} s")
        began = self.now
        self.later(for_s, lambda: self._thaw(node, began))

    def _thaw(self, node: Node, began: float) -> None:
        node.is_frozen = False
        node.lose(began)
        for process in node.processes.values():
            if process.state == READY and not process.stopped and process not in self.ready:
                self.ready.append(process)

    def after(self, moment: str, call: Callable[[], Any]) -> None:
        """Do something when this comes to pass for the first time; "": now."""
        if not moment:
            call()
        elif moment not in self._past:
            self._awaited.setdefault(moment, []).append(call)

    def passes(self, moment: str) -> None:
        if moment not in self._past:
            self._past.add(moment)
            for call in self._awaited.pop(moment, ()):
                call()

    def at(self, when: float, call: Callable[[], Any]) -> None:
        """Do something at this time."""
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, call))

    def later(self, in_s: float, call: Callable[[], Any]) -> None:
        self.at(self.now + in_s, call)

    def run(self, most_s: float = 1e6) -> None:
        """Until nothing can happen any more, or the time is over."""
        until = self.now + most_s
        while not self.is_over:
            self._fire_due()
            if self.ready:
                index = self.random.randrange(len(self.ready)) if len(self.ready) > 1 else 0
                process = self.ready.pop(index)
                if process.stopped or process.state != READY or process.node.is_frozen:
                    continue
                self.current = process
                assert process.greenlet is not None
                process.greenlet.switch()
                self.current = None
            elif self._heap and self._heap[0][0] <= until:
                self.now = max(self.now, self._heap[0][0])
            else:
                return

    def _fire_due(self) -> None:
        while self._heap and self._heap[0][0] <= self.now:
            heapq.heappop(self._heap)[2]()

    def leave(self, process: Process) -> None:
        """The thread of control of a process has ended."""
        while process in self.ready:
            self.ready.remove(process)

    # Called by processes

    def enter(self, process: Process, call: str) -> None:
        """A call begins: it takes some microseconds, in which others may do something."""
        if process.code is not None or self.is_over:
            raise GreenletExit  # it has been killed, and what follows is Python's tidying up
        self.calls += 1
        if self.calls > MOST_CALLS:
            self.spins = self.is_over = True
            raise GreenletExit
        chance = self._chance()
        self.now += chance * self.call_s
        if (self._heap and self._heap[0][0] <= self.now) or chance < self.restless:
            self.pause(process)
        process.deliver()
        if self.refused is not None and call == self.refused.call and process.is_ours:
            self._made += 1
            is_time = self.refused.since <= self.now < self.refused.until
            if is_time and self._made > self.refused.after:
                raise refused(self.refused.error)

    def look_at_clock(self, process: Process) -> float:
        """As `enter`, but nobody else can do something: of a clock that would show nothing."""
        if process.code is not None or self.is_over:
            raise GreenletExit
        self.now += 1e-7
        return self.now

    def pause(self, process: Process) -> None:
        """Let others go on, if they can; then go on."""
        self.ready.append(process)
        self.switch_away(process)

    def switch_away(self, process: Process) -> None:
        """Until somebody lets it go on."""
        self.hub.switch()
        if self.is_over:
            raise GreenletExit

    def wait(
        self,
        process: Process,
        is_there: Callable[[], Any],
        until: float | None = None,
        on: Iterable[Description] = (),
    ) -> Any:
        """Block until `is_there` says something true, which is the result; None: the time is over.

        `on` are what it waits for beside its own children and signals.
        """
        waited = list(on)
        for each in waited:
            each.waiters.append(process)
        if until is not None:
            self.at(until, process.wake)
        try:
            while True:
                process.deliver()
                found = is_there()
                if found:
                    return found
                if until is not None and self.now >= until:
                    return None
                process.state = BLOCKED
                self.switch_away(process)
        finally:
            for each in waited:
                each.waiters.remove(process)

    def close(self) -> None:
        """End all that is left of the simulation: no call of theirs does anything any more."""
        self.is_over = True
        for node in self.nodes:
            for process in list(node.processes.values()):
                if process.greenlet is not None and not process.greenlet.dead:
                    process.greenlet.throw(GreenletExit)


def standard_streams(process: Process, out: Description, err: Description) -> None:
    """What a process begins with."""
    process.fds[0] = Null().held(), True
    process.fds[1] = out.held(), True
    process.fds[2] = err.held(), True
