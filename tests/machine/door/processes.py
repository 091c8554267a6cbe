"""Calls about this process, and about others."""

import errno
import os
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

from tests.machine.descriptors import Pidfd
from tests.machine.door.calls import Calls
from tests.machine.errors import refused
from tests.machine.process import (
    CLD_CONTINUED,
    CLD_DUMPED,
    CLD_EXITED,
    CLD_KILLED,
    CLD_STOPPED,
    ZOMBIE,
    Info,
    Process,
    Sent,
)  # fmt: skip


class ChildStatus(SimpleNamespace):
    """waitid_result"""


class Processes(Calls):
    # This process

    def getpid(self) -> int:
        return self.begin("getpid").pid

    def getppid(self) -> int:
        parent = self.begin("getppid").parent
        return parent.pid if parent else 0

    def getpgrp(self) -> int:
        return self.begin("getpgrp").group

    def _named(self, process: Process, pid: int) -> Process:
        found = process if pid == 0 else process.node.processes.get(pid)
        if found is None:
            raise refused(errno.ESRCH)
        return found

    def getpgid(self, pid: int) -> int:
        return self._named(self.begin("getpgid"), pid).group

    def getsid(self, pid: int) -> int:
        return self._named(self.begin("getsid"), pid).session

    def setsid(self) -> None:
        process = self.begin("setsid")
        if process.node.members(process.pid):
            raise refused(errno.EPERM)
        process.group = process.session = process.pid

    def setpgrp(self) -> None:
        self.setpgid(0, 0)

    def setpgid(self, pid: int, group: int) -> None:
        me = self.begin("setpgid")
        process = self._named(me, pid)
        group = group or process.pid
        is_mine = process is me or process.parent is me
        if not is_mine:
            raise refused(errno.ESRCH)
        if process.session != me.session or process.pid == process.session:
            raise refused(errno.EPERM)
        if group != process.pid and not any(
            each.session == me.session for each in process.node.members(group)
        ):
            raise refused(errno.EPERM)
        process.group = group

    def geteuid(self) -> int:
        return self.begin("geteuid").uid

    def getcwd(self) -> str:
        return self.begin("getcwd").cwd

    def uname(self) -> Any:
        name = self.begin("uname").node.name
        return SimpleNamespace(nodename=name, machine="x86_64", sysname="Linux", release="6.1")

    def urandom(self, n: int) -> bytes:
        return self.begin("getrandom").kernel.random.randbytes(n)

    def sysconf(self, name: str) -> int:
        process = self.begin("sysconf")
        known = {"SC_OPEN_MAX": process.files_most, "SC_PHYS_PAGES": 1 << 20, "SC_PAGE_SIZE": 4096}
        return known[name]

    def prctl(self, option: int, value: int | bytes) -> bool:
        try:
            process = self.begin("prctl")
        except OSError:
            return False
        if option == 1:
            process.death_signal = int(value)  # type: ignore[arg-type]
        elif option == 36:
            process.is_subreaper = bool(value)
        elif option == 15 and isinstance(value, bytes):
            process.comm = os.fsdecode(value)[:15]
        return True

    def rename_process(self, name: str, title: str) -> None:
        process = self.begin("getpid")
        process.comm, process.command = name[:15], [title]

    # Processes

    def fork(self, child: Callable[[], object]) -> int:
        parent = self.begin("fork")
        if len(parent.node.processes) >= parent.node.most_processes:
            raise refused(errno.EAGAIN)

        def main(process: Process) -> int:
            try:
                child()
            except Exception:
                process.end(-signal.SIGVTALRM)  # as the door has it
            return 255

        process = parent.node.start(main, parent)
        parent.kernel.note(parent, f"forks {process.pid}")
        return process.pid

    def exit_now(self, status: int) -> NoReturn:
        self.begin("exit_group").end(status & 0xFF)
        raise AssertionError

    def execvpe(self, file: str, args: tuple[str, ...], environ: dict[str, str]) -> NoReturn:
        process = self.begin("execve")
        process.environ, process.command = dict(environ), list(args)
        program = process.node.programs(process)  # raises OSError where there is none
        process.comm = os.path.basename(file)[:15]
        for fd, (_, is_kept) in list(process.fds.items()):
            if not is_kept:
                process.shut(fd)
        ignored = {n: what for n, what in process.handlers.items() if what == signal.SIG_IGN}
        process.handlers, process.wakeup_fd = ignored, -1
        process.kernel.note(process, f"is now {' '.join(args)}")
        process.is_ours = False
        process.kernel.passes("started")
        process.end(program(process) or 0)
        raise AssertionError

    def kill(self, pid: int, signum: int) -> None:
        me = self.begin("kill")
        if pid > 0:
            self._signal(me, self._named(me, pid), signum)
        else:
            self.killpg(-pid if pid < -1 else me.group, signum)

    def _signal(self, me: Process, process: Process, signum: int) -> None:
        if process is process.node.init or (me.uid and me.uid != process.uid):
            raise refused(errno.EPERM)
        if signum:
            me.kernel.note(me, f"sends signal {signum} to {process.pid}")
            me.kernel.signals.append(Sent(me.kernel.now, me, process, signum))
            if signum == signal.SIGTERM and me.is_ours:
                me.kernel.passes("told")
            process.get_signal(signum, Info(signum, 0, me.pid))
            me.deliver()

    def killpg(self, group: int, signum: int) -> None:
        me = self.begin("kill")
        members = me.node.members(group)
        if not members:
            raise refused(errno.ESRCH)
        me.kernel.note(me, f"sends signal {signum} to group {group}")
        for process in members:
            if signum:
                me.kernel.signals.append(Sent(me.kernel.now, me, process, signum))
                process.get_signal(signum, Info(signum, 0, me.pid))
        me.deliver()

    def _waited(self, me: Process, pid: int) -> list[Process]:
        if pid == -1:
            found = list(me.children)
        elif pid < -1 or pid == 0:
            group = -pid if pid else me.group
            found = [child for child in me.children if child.group == group]
        else:
            found = [child for child in me.children if child.pid == pid]
        if not found:
            raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
        return found

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        me = self.begin("wait4")

        def ended() -> Process | None:
            there = (child for child in self._waited(me, pid) if child.state == "zombie")
            return next((child for child in there if not child.tracer), None)

        child = ended()
        if child is None:
            if options & os.WNOHANG:
                return 0, 0
            child = self.wait(me, ended, None)
        code = child.code
        me.node.forget(child)
        return child.pid, (-code | (0x80 if child.dumped else 0)) if code < 0 else code << 8

    def wait4(self, pid: int, options: int) -> tuple[int, int, Any]:
        found, status = self.waitpid(pid, options)
        used = SimpleNamespace(ru_utime=0.1, ru_stime=0.1, ru_maxrss=1000, ru_nivcsw=0, ru_majflt=0)
        return found, status, used

    def waitid(self, kind: int, pid: int, options: int) -> ChildStatus | None:
        me = self.begin("waitid")

        def told() -> ChildStatus | None:
            for child in self._waited(me, pid if kind == os.P_PID else -1):
                found = _changed(child, options)
                if found is not None:
                    code, status = found
                    if not options & os.WNOWAIT:
                        _forget(child, code)
                    return ChildStatus(
                        si_pid=child.pid, si_uid=0, si_signo=17, si_status=status, si_code=code
                    )
            return None

        found = told()
        if found is None and not options & os.WNOHANG:
            found = self.wait(me, told, None)
        return found

    def open_pidfd(self, pid: int) -> int | None:
        try:
            me = self.begin("pidfd_open")
        except OSError:
            return None
        process = me.node.processes.get(pid)
        try:
            return None if process is None else me.put(Pidfd(process).held())
        except OSError:
            return None  # as the door has it

    def signal_pidfd(self, fd: int, signum: int) -> bool:
        try:
            me = self.begin("pidfd_send_signal")
        except OSError:
            return False
        what = me.at(fd)
        assert isinstance(what, Pidfd)
        if what.process.state != "gone":
            self._signal(me, what.process, signum)
        return True


def _changed(child: Process, options: int) -> tuple[int, int] | None:
    """What waitid(2) tells of a child: the code and the status."""
    if options & os.WEXITED and child.state == ZOMBIE and not child.tracer:
        code = child.code or 0
        killed = CLD_DUMPED if child.dumped else CLD_KILLED
        return CLD_EXITED if code >= 0 else killed, abs(code)
    if options & os.WSTOPPED and child.told_stop is not None and child.stopped:
        return CLD_STOPPED, child.told_stop
    if options & os.WCONTINUED and child.told_cont:
        return CLD_CONTINUED, int(signal.SIGCONT)
    return None


def _forget(child: Process, code: int) -> None:
    if code == CLD_STOPPED:
        child.told_stop = None
    elif code == CLD_CONTINUED:
        child.told_cont = False
    else:
        child.node.forget(child)
