"""A machine of the simulation: its processes, its files and its terminals."""

from __future__ import annotations

import errno
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, greenlet

from tests.machine.descriptors import Pidfd
from tests.machine.errors import refused
from tests.machine.files import Files
from tests.machine.network import Network
from tests.machine.process import BLOCKED, GONE, SI_KERNEL, ZOMBIE, Info, Process

if TYPE_CHECKING:
    from tests.machine.kernel import Kernel


class Node:
    """One machine: its processes and their numbers, its files, its terminal's groups."""

    def __init__(self, kernel: Kernel, name: str) -> None:
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
