"""The one door to the machine: all that a launch does to the world, or asks of it, goes through.

Each name is a system call or two and decides nothing: the clock, processes, signals, descriptors,
files. Rooms say `machine.read(fd, n)`, so that tests can put a simulated machine in the place of
all of them (tests/machine). What has the name of a function of `os`, `time`, `signal` or `select`
is that function.

`_ctypes` is the part of `ctypes` that is written in C. It is imported in half a millisecond,
`ctypes` in three. Sources: prctl(2), pidfd_open(2), pidfd_send_signal(2), signalfd(2), proc(5). The
numbers of the pidfd calls are the same on every architecture.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signals
    from typing import Any
else:
    import _signal as signals

try:
    import _ctypes

    class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "l"

    class _Function(_ctypes.CFuncPtr):  # whose result is an int
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO

    _library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # this program itself
    IS_LINUX = sys.platform == "linux"
except (ImportError, OSError):  # a Python without libffi
    IS_LINUX = False

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
SYS_PIDFD_SEND_SIGNAL = 424
SYS_PIDFD_OPEN = 434
AT_ONCE_S = 0.01  # that a write may take which does not wait

# The clock

monotonic, sleep, time = clock.monotonic, clock.sleep, clock.time

_lost_s = 0.0  # see `lose`


def running_s() -> float:
    """The monotonic clock without the time in which this process could not run, in seconds."""
    return monotonic() - _lost_s


def lose(gap_s: float) -> None:
    """So many seconds do not count by `running_s`."""
    global _lost_s
    _lost_s += gap_s


remembered: dict[object, bool] = {}  # what this process has found out once; a fork has it too


# This process, and others

exit_now = os._exit
geteuid, getpgid, getpgrp, setpgrp = os.geteuid, os.getpgid, os.getpgrp, os.setpgrp
getpid, getppid, getsid, setpgid, setsid = os.getpid, os.getppid, os.getsid, os.setpgid, os.setsid
getcwd, sysconf, uname, urandom = os.getcwd, os.sysconf, os.uname, os.urandom
execvpe, posix_spawn, kill, killpg = os.execvpe, os.posix_spawn, os.kill, os.killpg
wait4, waitpid = os.wait4, os.waitpid
if hasattr(os, "sched_getaffinity"):
    sched_getaffinity, sched_setaffinity = os.sched_getaffinity, os.sched_setaffinity
if hasattr(os, "waitid"):  # macOS has it since Python 3.13
    waitid = os.waitid


def name_now() -> str:
    """A name that begins with the time (UTC) and is by chance nobody else's."""
    return f"{clock.strftime('%Y%m%dT%H%M%SZ', clock.gmtime(time()))}-{urandom(4).hex()}"


def fork(child: Callable[[], object]) -> int:
    """Run `child` in another process; the result is its pid. Raises OSError.

    It ends by `exit_now`, or becomes another program: it never runs on as a second parent.
    """
    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:  # a death that is not taken for an end: of a timer that nobody sets
            signals.signal(signals.SIGVTALRM, signals.SIG_DFL)
            os.kill(os.getpid(), signals.SIGVTALRM)
            os._exit(os.EX_SOFTWARE)
    return pid


def call(name: str, *arguments: int | bytes) -> int:
    """Call a function of the C library whose result is an int: that, or -errno where it is -1.

    Numbers are passed as long: of a shorter one, a variadic function would find whatever was in the
    upper half of the register. `bytes` are passed as their address. Only where IS_LINUX.
    """
    function = _Function(_ctypes.dlsym(_library, name))
    result = function(*(each if isinstance(each, bytes) else _Long(each) for each in arguments))
    return -_ctypes.get_errno() if result == -1 else int(result)


def prctl(option: int, value: int | bytes) -> bool:
    """Ask the kernel for this of this process; False where it refuses (prctl(2))."""
    return IS_LINUX and call("prctl", option, value, 0, 0, 0) == 0


def open_pidfd(pid: int) -> int | None:
    """A descriptor of the process, close-on-exec; None where the kernel has none or it is gone."""
    try:
        if hasattr(os, "pidfd_open"):
            return os.pidfd_open(pid)
    except OSError:
        return None
    if not IS_LINUX:
        return None
    fd = call("syscall", SYS_PIDFD_OPEN, pid, 0)
    return fd if fd >= 0 else None


def signal_pidfd(fd: int, signum: int) -> bool:
    """Signal the process behind a descriptor, where it is there and ours; False: refused."""
    if hasattr(signals, "pidfd_send_signal"):
        try:
            signals.pidfd_send_signal(fd, signum)
        except OSError as error:
            return isinstance(error, ProcessLookupError)
        return True
    return call("syscall", SYS_PIDFD_SEND_SIGNAL, fd, signum, 0, 0) == 0


# Signals

getsignal, pthread_sigmask, signal = signals.getsignal, signals.pthread_sigmask, signals.signal
set_wakeup_fd, setitimer = signals.set_wakeup_fd, signals.setitimer


def signalfd(signums: Iterable[int]) -> int | None:
    """A descriptor to read these signals from, where they are blocked (signalfd(2)).

    It is close-on-exec, and never waits. None: refused, or this is not Linux.
    """
    mask = sum(1 << (signum - 1) for signum in signums).to_bytes(128, "little")
    if sys.byteorder == "big":
        mask = mask[7::-1] + mask[8:]
    fd = call("signalfd", -1, mask, os.O_CLOEXEC | os.O_NONBLOCK) if IS_LINUX else -1
    return fd if fd >= 0 else None


# Descriptors

close, dup, dup2, fstat, fsync = os.close, os.dup, os.dup2, os.fstat, os.fsync
ftruncate, get_inheritable = os.ftruncate, os.get_inheritable
set_blocking, set_inheritable = os.set_blocking, os.set_inheritable
get_terminal_size, isatty, pipe = os.get_terminal_size, os.isatty, os.pipe
pread, pwrite, read, write = os.pread, os.pwrite, os.read, os.write
sameopenfile = os.path.sameopenfile
poll = select.poll
if hasattr(select, "epoll"):
    epoll = select.epoll
if hasattr(os, "memfd_create"):
    memfd_create = os.memfd_create


def write_now(fd: int, data: bytes) -> int:
    """Write what there is room for, though the descriptor is one that waits.

    It may be another user's pipe or terminal, which we cannot open once more, and O_NONBLOCK would
    be set for all who have it (open(2)). poll(2) tells that there is room, and others may be
    quicker: so a timer interrupts a write that waits. At most PIPE_BUF bytes are written to a pipe
    as a whole or not at all (pipe(7)). Raises OSError: BlockingIOError where nothing was written.
    """
    if not IS_LINUX:
        return write(fd, data)
    alarm, handler, mask, timer = signals.SIGALRM, None, None, None
    try:
        try:
            handler = signals.signal(alarm, lambda *_: None)
            mask = pthread_sigmask(signals.SIG_UNBLOCK, [alarm])
            timer = setitimer(signals.ITIMER_REAL, AT_ONCE_S, AT_ONCE_S)
        except (OSError, ValueError):  # refused, as in any thread but the first
            pass
        written = call("write", fd, data, len(data))  # os.write would try again
    finally:
        if timer:
            setitimer(signals.ITIMER_REAL, *timer)
        if mask is not None:
            pthread_sigmask(signals.SIG_SETMASK, mask)
        if handler is not None:
            signals.signal(alarm, handler)
    if written < 0:
        number = errno.EAGAIN if written == -errno.EINTR else -written
        raise OSError(number, os.strerror(number))
    return written


def ioctl(fd: int, request: int, argument: bytes) -> bytes:
    """ioctl(2): the argument as it is afterwards. Raises OSError."""
    from fcntl import ioctl

    return ioctl(fd, request, argument)


def size_of(pipe: int) -> int:
    """How many bytes a pipe holds."""
    import termios  # needed when a worker has ended

    return int.from_bytes(ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


UNLIMITED = -1  # RLIM_INFINITY, as Python's resource has it


def getrlimit() -> tuple[int, int]:
    """How many descriptors this process may have: the soft limit, and the hard one."""
    import resource  # needed by a hundred workers and more

    return resource.getrlimit(resource.RLIMIT_NOFILE)


def setrlimit(limits: tuple[int, int]) -> None:
    """Set both; the soft one may be raised up to the hard one."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# Sockets: those of `_socket`, as `socket` adds enums and selectors, 5 ms of every launch


def socket(family: int, kind: int) -> Any:
    """A socket (socket(2)), closed with the last who knows it. Raises OSError."""
    import _socket

    class socket(_socket.socket):  # which does not warn of that (PYTHONWARNINGS=error)
        __del__ = _socket.socket.close

    return socket(family, kind)


def accept(listener: Any) -> tuple[Any, Any]:
    """A connection that has come, and from where. Raises OSError: there is none."""
    import _socket

    fd, address = listener._accept()
    return _socket.socket(fileno=fd), address


def socketpair() -> tuple[Any, Any]:
    """Two sockets that are connected (socketpair(2)). Raises OSError."""
    import socket

    return socket.socketpair()


def connect_local(address: str) -> tuple[Any, int, int]:
    """A socket that is connected with who listens there (unix(7)), his pid and his user.

    It waits for nobody. Raises OSError: nobody listens, or too many want to be heard.
    """
    import socket

    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.setblocking(False)
        client.connect(address)
        told = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except OSError:
        client.close()
        raise
    pid, uid = (int.from_bytes(told[i : i + 4], sys.byteorder) for i in (0, 4))
    return client, pid, uid


def send_fds(to: Any, parts: list[bytes], fds: Sequence[int]) -> int:
    """Send bytes, and with them descriptors (unix(7), SCM_RIGHTS). Raises OSError."""
    import socket

    return socket.send_fds(to, parts, fds)


def recv_fds(of: Any, size: int, most: int) -> tuple[bytes, list[int]]:
    """At most so many bytes, and descriptors that came with them. Raises OSError."""
    import socket

    return socket.recv_fds(of, size, most)[:2]


def getaddrinfo(name: str, port: int | None, *how: int) -> Any:
    """Addresses of a name (getaddrinfo(3)); family, kind, protocol and flags may follow.

    It takes as long as name servers do. Raises OSError.
    """
    import _socket

    # Of text Python asks its tables of Unicode first, a quarter of a mebibyte, and refuses by them.
    return _socket.getaddrinfo(name.encode() if name.isascii() else name, port, *how)


# Files

access, fchmod, fchown, listdir, lstat = os.access, os.fchmod, os.fchown, os.listdir, os.lstat
mkdir, open, readlink, rename = os.mkdir, os.open, os.readlink, os.rename
replace, rmdir, stat, symlink, unlink = os.replace, os.rmdir, os.stat, os.symlink, os.unlink
exists, isdir, isfile, lexists = os.path.exists, os.path.isdir, os.path.isfile, os.path.lexists


def content(path: str, most: int = 1 << 30) -> bytes:
    """A file's bytes, at most so many. Raises OSError."""
    fd = open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while most > 0 and (part := read(fd, min(most, 1 << 16))):
            parts.append(part)
            most -= len(part)
        return b"".join(parts)
    finally:
        close(fd)


def name_of_user(uid: int) -> str:
    """As the machine's list of users has it (getpwuid(3)), else "user 1000"."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


# What others are shown of this process


def rename_process(name: str, title: str) -> None:
    """Show `name` (15 bytes at most) as command in ps, and `title` as command line."""
    if IS_LINUX:
        prctl(PR_SET_NAME, os.fsencode(name)[:15])
        # The words of the command line lie there, each with its NUL. Python has copied them.
        _overwrite(48, lambda room: os.fsencode(title)[: room - 1])


def show_environment(environ: Mapping[str, str]) -> None:
    """Show these variables in /proc/PID/environ, in their order, as many as there is room for.

    To be called when none is used any more of those that this process was started with.
    """
    text = b"".join(os.fsencode(f"{name}={value}\0") for name, value in environ.items())
    if IS_LINUX:
        _overwrite(50, lambda room: text[: text.rfind(b"\0", 0, room) + 1])  # no variable is cut


def _overwrite(field: int, fitting: Callable[[int], bytes]) -> None:
    """Write over the memory of this process from where that field of its stat says to the next's.

    `fitting` is given the room in bytes (proc(5), /proc/PID/stat, arg_start and env_start).
    """
    try:
        fields = content("/proc/self/stat").rpartition(b") ")[2].split()  # from the third on
        start, end = map(int, fields[field - 3 : field - 1])
    except OSError:
        return
    if 0 < start < end:
        call("memmove", start, fitting(end - start).ljust(end - start, b"\0"), end - start)


def die_with_parent(parent: int, signum: int = signals.SIGKILL) -> None:
    """Have the kernel kill this process, or send it another signal, when its parent ends.

    The parent is the thread that forked it, `parent` that thread's process; it may have ended
    before the kernel was asked, so that is looked at afterwards. The setting survives exec, and is
    not inherited by children.
    """
    if prctl(PR_SET_PDEATHSIG, signum) and getppid() != parent:
        exit_now(128 + signum)
