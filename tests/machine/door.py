"""The simulated kernel in the place of `spawnlaunch.machine`: one method for each name there.

A method is what its call is on Linux, for the process that runs just now.
"""

from __future__ import annotations

import _socket
import errno
import os
import select
import signal
import stat
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

from greenlet import GreenletExit

from spawnlaunch import machine
from tests.machine import procfs
from tests.machine.descriptors import Description, Epoll, Null, Pidfd, Pipe, Regular
from tests.machine.kernel import NEVER, SI_KERNEL, Info, Kernel, Process, Sent, refused
from tests.machine.network import Datagram, Socket, Tcp

OWN = frozenset({"install", "begin", "wait"})
# Names of the door that are made of others of it: they stay as they are.
MADE_OF_OTHERS = frozenset({"content", "die_with_parent", "show_environment"})


def calls() -> frozenset[str]:
    """All that rooms may call of the door."""
    return frozenset(
        name for name, what in vars(machine).items() if callable(what) and not name.startswith("_")
    )


def _not_simulated(name: str, *_: object, **__: object) -> NoReturn:
    raise AssertionError(f"machine.{name} is not simulated")


class ChildStatus(SimpleNamespace):
    """waitid_result"""


class Remembered:
    """`machine.remembered`: of whoever runs."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    @property
    def _own(self) -> dict[object, bool]:
        process = self._kernel.current
        return process.remembered if process else {}

    def __contains__(self, what: object) -> bool:
        return what in self._own

    def __getitem__(self, what: object) -> bool:
        return self._own[what]

    def __setitem__(self, what: object, is_so: bool) -> None:
        self._own[what] = is_so


class Poll:
    """select.poll"""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._events: dict[int, int] = {}

    def register(self, fd: int, events: int = select.POLLIN | select.POLLOUT) -> None:
        self._events[fd] = events

    def unregister(self, fd: int) -> None:
        del self._events[fd]

    def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
        process = self._door.begin("poll")
        timeout_s = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000

        def ready() -> list[tuple[int, int]]:
            found = []
            for fd, events in self._events.items():
                if fd not in process.fds:
                    found.append((fd, select.POLLNVAL))
                    continue
                seen = process.fds[fd][0].events() & (events | select.POLLERR | select.POLLHUP)
                if seen:
                    found.append((fd, seen))
            return found

        on = [process.fds[fd][0] for fd in self._events if fd in process.fds]
        return self._door.wait(process, ready, timeout_s, on) or []


class EpollObject:
    """select.epoll"""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._epoll = Epoll()
        self._fd = door.begin("epoll_create").put(self._epoll.held())

    def fileno(self) -> int:
        return self._fd

    def register(self, fd: Any, events: int = select.EPOLLIN) -> None:
        process = self._door.begin("epoll_ctl")
        if fd is self:
            raise refused(errno.EINVAL)
        self._epoll.add(fd, process.at(fd), events)

    def unregister(self, fd: int) -> None:
        process = self._door.begin("epoll_ctl_del")  # which fails for want of nothing
        self._epoll.remove(fd, process.at(fd))

    def poll(self, timeout_s: float | None = None, most: int = -1) -> list[tuple[int, int]]:
        process = self._door.begin("epoll_wait")
        until = None if timeout_s is None or timeout_s < 0 else timeout_s
        most = 1023 if most < 0 else most
        found = self._door.wait(process, lambda: self._epoll.take(most), until, [self._epoll])
        return found or []

    def close(self) -> None:
        self._door.close(self._fd)


class Door:
    """All calls. `kernel.current` is who makes them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def install(self) -> dict[str, Any]:
        """Put all calls in the place of the door's; the result is what was there.

        One that is not simulated is an error: it would be made on the machine itself.
        """
        before = {name: getattr(machine, name) for name in (*calls(), "remembered")}
        for name in calls() - MADE_OF_OTHERS:
            machine.__dict__[name] = getattr(self, name, partial(_not_simulated, name))
        machine.__dict__["remembered"] = Remembered(self._kernel)
        return before

    @property
    def _running(self) -> Process:
        process = self._kernel.current
        if self._kernel.is_over:
            raise GreenletExit
        assert process is not None
        return process

    def begin(self, call: str) -> Process:
        process = self._kernel.current
        if self._kernel.is_over:
            raise GreenletExit
        assert process is not None, f"{call} outside of the simulation"
        self._kernel.enter(process, call)
        return process

    def wait(
        self,
        process: Process,
        is_there: Callable[[], Any],
        timeout_s: float | None,
        on: Iterable[Description] = (),
    ) -> Any:
        kernel = self._kernel
        until = None if timeout_s is None else kernel.now + timeout_s
        return kernel.wait(process, is_there, until, on)

    # The clock

    def monotonic(self) -> float:
        return self._kernel.look_at_clock(self._running)

    def running_s(self) -> float:
        process = self._running
        return self._kernel.look_at_clock(process) - process.uncounted_s

    def lose(self, gap_s: float) -> None:
        self._running.uncounted_s += gap_s

    def time(self) -> float:
        return self.monotonic() + self._kernel.wall

    def sleep(self, seconds: float) -> None:
        self.wait(self.begin("nanosleep"), lambda: False, seconds)

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
        assert process.node.programs is not None
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
                if options & os.WEXITED and child.state == "zombie" and not child.tracer:
                    code = child.code or 0
                    what = 1 if code >= 0 else 3 if child.dumped else 2
                    found = ChildStatus(
                        si_pid=child.pid, si_uid=0, si_signo=17, si_status=abs(code), si_code=what
                    )
                    if not options & os.WNOWAIT:
                        me.node.forget(child)
                    return found
                if options & os.WSTOPPED and child.told_stop is not None and child.stopped:
                    found = ChildStatus(
                        si_pid=child.pid, si_uid=0, si_signo=17, si_status=child.told_stop,
                        si_code=5,
                    )  # fmt: skip
                    if not options & os.WNOWAIT:
                        child.told_stop = None
                    return found
                if options & os.WCONTINUED and child.told_cont:
                    found = ChildStatus(
                        si_pid=child.pid, si_uid=0, si_signo=17, si_status=18, si_code=6
                    )
                    if not options & os.WNOWAIT:
                        child.told_cont = False
                    return found
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

    # Signals

    def pthread_sigmask(self, how: int, signums: Iterable[int]) -> set[int]:
        process = self.begin("rt_sigprocmask")
        before, given = process.blocked, frozenset(map(int, signums)) - NEVER
        if how == signal.SIG_BLOCK:
            process.blocked |= given
        elif how == signal.SIG_UNBLOCK:
            process.blocked -= given
        else:
            process.blocked = given
        process.deliver()
        return set(before)

    def signal(self, signum: int, handler: Any) -> Any:
        process = self.begin("rt_sigaction")
        if signum in NEVER:
            raise refused(errno.EINVAL)
        before = process.handlers.get(int(signum), signal.SIG_DFL)
        process.handlers[int(signum)] = handler
        if process.ignores(signum):
            process.pending.pop(int(signum), None)  # POSIX: it is discarded
        return before

    def getsignal(self, signum: int) -> Any:
        process = self._kernel.current
        assert process is not None
        return process.handlers.get(int(signum), signal.SIG_DFL)

    def set_wakeup_fd(self, fd: int, warn_on_full_buffer: bool = True) -> int:
        process = self.begin("fcntl")
        before, process.wakeup_fd = process.wakeup_fd, fd
        return before

    def setitimer(self, which: int, seconds: float) -> None:
        process = self.begin("setitimer")
        process.alarms += 1
        number, signum = process.alarms, int(signal.SIGALRM)

        def over() -> None:
            if process.alarms == number:
                process.get_signal(signum, Info(signum, SI_KERNEL))

        if seconds:
            process.kernel.at(process.kernel.now + seconds, over)

    def sigwaitinfo(self, signums: Iterable[int]) -> Info:
        return self._signal_waited_for(signums, None)  # type: ignore[return-value]

    def sigtimedwait(self, signums: Iterable[int], timeout_s: float) -> Info | None:
        """As in CPython 3.10 to 3.13: what is interrupted as its time ends returns rubbish."""
        began = self._kernel.now
        found = self._signal_waited_for(signums, timeout_s)
        process = self._kernel.current
        assert process is not None
        took_s = process.kernel.now - began
        if found is None and process.could_run_s(began, process.kernel.now) < took_s:
            return Info(process.kernel.random.randrange(1 << 31), 0, 0)
        return found

    def _signal_waited_for(self, signums: Iterable[int], timeout_s: float | None) -> Info | None:
        process = self.begin("rt_sigtimedwait")
        process.waits_for = frozenset(map(int, signums))

        def come() -> Info | None:
            for signum in sorted(process.pending):
                if signum in process.waits_for:
                    return process.pending.pop(signum)
            return None

        try:
            return self.wait(process, come, timeout_s)  # type: ignore[no-any-return]
        finally:
            process.waits_for = frozenset()

    # Descriptors

    def pipe(self) -> tuple[int, int]:
        process = self.begin("pipe2")
        pipe = Pipe()
        reader = process.put(pipe.reader.held())
        try:
            return reader, process.put(pipe.writer.held())
        except OSError:
            process.shut(reader)
            raise

    def read(self, fd: int, most: int) -> bytes:
        process = self.begin("read")
        return process.at(fd).read(process, most)

    def write(self, fd: int, data: bytes) -> int:
        process = self.begin("write")
        return process.at(fd).write(process, bytes(data))

    def close(self, fd: int) -> None:
        self.begin("close").shut(fd)

    def dup(self, fd: int) -> int:
        process = self.begin("fcntl")
        return process.put(process.at(fd).held())

    def dup2(self, fd: int, to: int, inheritable: bool = True) -> int:
        process = self.begin("dup3")
        what = process.at(fd)
        if fd != to:
            what.held()
            if to in process.fds:
                process.shut(to)
        process.fds[to] = what, inheritable
        return to

    def set_blocking(self, fd: int, blocks: bool) -> None:
        self.begin("fcntl").at(fd).blocks = blocks

    def get_inheritable(self, fd: int) -> bool:
        process = self.begin("fcntl")
        process.at(fd)
        return process.fds[fd][1]

    def set_inheritable(self, fd: int, inheritable: bool) -> None:
        process = self.begin("fcntl")
        process.fds[fd] = process.at(fd), inheritable

    def isatty(self, fd: int) -> bool:
        return fd in self.begin("ioctl").fds and False

    def get_terminal_size(self, fd: int) -> NoReturn:
        self.begin("ioctl").at(fd)
        raise refused(errno.ENOTTY)

    def size_of(self, pipe: int) -> int:
        what = self.begin("ioctl").at(pipe)
        return int(what.pipe.size)  # type: ignore[attr-defined]

    def poll(self) -> Poll:
        return Poll(self)

    def epoll(self) -> EpollObject:
        return EpollObject(self)

    def fstat(self, fd: int) -> Any:
        what = self.begin("fstat").at(fd)
        if isinstance(what, Regular):
            return what.inode.status()
        return SimpleNamespace(st_mode=what.kind | 0o600, st_ino=id(what), st_dev=0, st_uid=0,
                               st_gid=0, st_size=0, st_mtime=0.0)  # fmt: skip

    def sameopenfile(self, one: int, other: int) -> bool:
        process = self.begin("fstat")
        return process.at(one) is process.at(other)

    def memfd_create(self, name: str) -> int:
        return self._opened(self.begin("memfd_create"))

    def _opened(self, process: Process) -> int:
        from tests.machine.files import Inode

        return process.put(Regular(Inode(stat.S_IFREG, 0o600)).held())

    def ftruncate(self, fd: int, size: int) -> None:
        what = self.begin("ftruncate").at(fd)
        assert isinstance(what, Regular)
        del what.inode.content[size:]

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        what = self.begin("pwrite64").at(fd)
        assert isinstance(what, Regular)
        what.inode.content[offset : offset + len(data)] = data
        return len(data)

    def pread(self, fd: int, most: int, offset: int) -> bytes:
        what = self.begin("pread64").at(fd)
        assert isinstance(what, Regular)
        return bytes(what.inode.content[offset : offset + most])

    def fchmod(self, fd: int, mode: int) -> None:
        what = self.begin("fchmod").at(fd)
        assert isinstance(what, Regular)
        what.inode.mode = mode

    def fchown(self, fd: int, uid: int, _gid: int) -> None:
        what = self.begin("fchown").at(fd)
        assert isinstance(what, Regular)
        what.inode.uid = uid

    def fsync(self, fd: int) -> None:
        self.begin("fsync").at(fd)

    def getrlimit(self) -> tuple[int, int]:
        process = self.begin("prlimit64")
        return process.files_most, process.node.files_hard

    def setrlimit(self, limits: tuple[int, int]) -> None:
        self.begin("prlimit64").files_most = limits[0]

    # Sockets

    def socket(self, family: int, kind: int) -> Socket:
        process = self.begin("socket")
        if kind == _socket.SOCK_STREAM and family == _socket.AF_INET:
            return Socket(self, Tcp(process.node), process)
        return Socket(self, Datagram(process.node), process)

    def connect_local(self, address: str) -> NoReturn:
        self.begin("socket").free()  # as many as it may have open
        self.begin("connect")
        raise refused(errno.ECONNREFUSED)  # no simulated worker has a thread that listens

    def accept(self, listener: Socket) -> tuple[Socket, Any]:
        process = self.begin("accept4")
        backlog = process.at(listener.fileno()).backlog
        if not backlog:
            raise refused(errno.EAGAIN)
        process.free()  # else the connection stays where it is
        what = backlog.pop(0)
        made = Socket(self, what, process)
        what.release()
        return made, what.remote

    def getaddrinfo(self, name: str, port: int | None, *how: int) -> Any:
        process = self.begin("getaddrinfo")
        family, flags = (*how, 0, 0, 0, 0)[0], (*how, 0, 0, 0, 0)[3]
        network = process.node.network
        is_number = name.replace(".", "").isdigit()
        if not is_number and not flags & _socket.AI_NUMERICHOST:
            takes_s, address = network.answer(process, name)
            self.wait(process, lambda: False, takes_s)
            if name in ("localhost",):
                address = "127.0.0.1"
        else:
            address = name if is_number else None
        if address is None or family == _socket.AF_INET6:
            raise _socket.gaierror(_socket.EAI_NONAME, "Name or service not known")
        return [(_socket.AF_INET, _socket.SOCK_STREAM, 6, "", (address, port or 0))]

    # Files

    def _at(self, process: Process, path: str) -> str:
        return os.path.join(process.cwd, path)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        process = self.begin("openat")
        path = self._at(process, path)
        if path == os.devnull:
            return process.put(Null().held())
        if path.startswith("/dev/fd/"):
            what = process.at(int(path.rpartition("/")[2]))
            return process.put(what.reopened(flags).held())
        if path.startswith("/proc"):
            content = Regular.of(procfs.read(process, path))
            return process.put(content.held())
        files = process.node.files
        try:
            inode = files.find(path, follow=not flags & os.O_NOFOLLOW)
            if flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            inode = files.make(path, stat.S_IFREG, mode & ~process.umask, process.uid)
        if inode.kind == stat.S_IFLNK:
            raise refused(errno.ELOOP, path)
        if inode.kind == stat.S_IFDIR and flags & (os.O_WRONLY | os.O_RDWR):
            raise refused(errno.EISDIR, path)
        if flags & os.O_TRUNC:
            inode.content.clear()
        return process.put(Regular(inode, bool(flags & os.O_APPEND), files.room).held())

    def stat(self, path: str) -> Any:
        process = self.begin("stat")
        if path.startswith("/proc/"):
            procfs.read(process, path)
            return SimpleNamespace(st_mode=stat.S_IFREG | 0o444, st_uid=0, st_mtime=0.0)
        return process.node.files.find(self._at(process, path)).status()

    def lstat(self, path: str) -> Any:
        process = self.begin("lstat")
        return process.node.files.find(self._at(process, path), follow=False).status()

    def readlink(self, path: str) -> str:
        process = self.begin("readlink")
        if path == "/proc/self":
            return str(process.pid)
        found = process.node.files.find(self._at(process, path), follow=False)
        if found.kind != stat.S_IFLNK:
            raise refused(errno.EINVAL, path)
        return found.target

    def exists(self, path: str) -> bool:
        return self._kind(path, True) != 0

    def lexists(self, path: str) -> bool:
        return self._kind(path, False) != 0

    def isdir(self, path: str) -> bool:
        return self._kind(path, True) == stat.S_IFDIR

    def isfile(self, path: str) -> bool:
        return self._kind(path, True) == stat.S_IFREG

    def _kind(self, path: str, follow: bool) -> int:
        """What is there; 0: nothing that can be seen."""
        try:
            return stat.S_IFMT((self.stat if follow else self.lstat)(path).st_mode)
        except OSError:
            return 0

    def access(self, path: str, how: int) -> bool:
        process = self.begin("access")
        try:
            process.node.files.find(self._at(process, path))
        except OSError:
            return False
        return True

    def listdir(self, path: str) -> list[str]:
        process = self.begin("getdents64")
        if path == "/dev/fd":  # with the one by which it is listed
            own = process.put(Null().held())
            names = [str(fd) for fd in process.fds]
            process.shut(own)
            return names
        if path.startswith("/proc"):
            return procfs.names(process, path)
        return list(process.node.files.find(self._at(process, path)).entries)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        process = self.begin("mkdir")
        files = process.node.files
        files.make(self._at(process, path), stat.S_IFDIR, mode & ~process.umask, process.uid)

    def makedirs(self, path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        above = os.path.dirname(path)
        if above and not self.exists(above):
            self.makedirs(above, exist_ok=True)
        try:
            self.mkdir(path, mode)
        except OSError:
            if not (exist_ok and self.isdir(path)):
                raise

    def rmdir(self, path: str) -> None:
        process = self.begin("rmdir")
        process.node.files.unlink(self._at(process, path), directory=True)

    def unlink(self, path: str) -> None:
        process = self.begin("unlink")
        process.node.files.unlink(self._at(process, path))

    def rename(self, old: str, new: str) -> None:
        process = self.begin("rename")
        process.node.files.rename(self._at(process, old), self._at(process, new))

    replace = rename
