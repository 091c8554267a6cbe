"""The one door to the machine: all effects of a launch, and all its questions, pass through it.

Each name is one or two system calls and decides nothing: clock, processes, signals, descriptors,
files. Rooms call `machine.read(fd, n)`, so that tests can put a simulated machine in place of all
of them (tests/machine). A name that `os`, `time`, `signal` or `select` has too is that function.

`_ctypes` is the part of `ctypes` that is written in C. Its import takes half a millisecond, that of
`ctypes` three. Sources: prctl(2), pidfd_open(2), pidfd_send_signal(2), signalfd(2), proc(5). The
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

    class _Function(_ctypes.CFuncPtr):  # a C function that returns an int
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
AT_ONCE_S = 0.01  # the longest time for a write that does not wait

# The clock

monotonic, sleep, time = clock.monotonic, clock.sleep, clock.time

_excluded_s = 0.0  # see `exclude`


def running_s() -> float:
    """The monotonic clock without the time in which this process could not run, in seconds."""
    return monotonic() - _excluded_s


def exclude(gap_s: float) -> None:
    """Subtract from `running_s` a period in which this process could not run."""
    global _excluded_s
    _excluded_s += gap_s


remembered: dict[object, bool] = {}  # facts that this process has found; a fork inherits them


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
    """Return a unique name: the time (UTC) and a random number."""
    return f"{clock.strftime('%Y%m%dT%H%M%SZ', clock.gmtime(time()))}-{urandom(4).hex()}"


def fork(child: Callable[[], object]) -> int:
    """Run `child` in another process and return its pid. Raises OSError.

    The child ends by `exit_now`, or becomes another program: it never continues as a second parent.
    """
    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:  # end by the signal of a timer that is never set: it counts as no normal end
            signals.signal(signals.SIGVTALRM, signals.SIG_DFL)
            os.kill(os.getpid(), signals.SIGVTALRM)
            os._exit(os.EX_SOFTWARE)
    return pid


def call(name: str, *arguments: int | bytes) -> int:
    """Call a function of the C library that returns an int; return -errno where that is -1.

    Numbers are passed as long: with a shorter type a variadic function would read garbage from the
    upper half of the register. `bytes` are passed as their address. Only where IS_LINUX.
    """
    function = _Function(_ctypes.dlsym(_library, name))
    result = function(*(each if isinstance(each, bytes) else _Long(each) for each in arguments))
    return -_ctypes.get_errno() if result == -1 else int(result)


def prctl(option: int, value: int | bytes) -> bool:
    """Set an option of this process (prctl(2)); False where the kernel refuses."""
    return IS_LINUX and call("prctl", option, value, 0, 0, 0) == 0


def open_pidfd(pid: int) -> int | None:
    """Open a pidfd, close-on-exec; None where the kernel has none, or the process has gone."""
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
    """Send a signal to the process of a pidfd; False where the kernel refuses."""
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
    """Open a descriptor to read these signals from, after they are blocked (signalfd(2)).

    It is close-on-exec and non-blocking. None: the kernel refuses, or this is not Linux.
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
    """Write as many bytes as there is room for, on a descriptor that is blocking.

    It may be another user's pipe or terminal, which this process cannot open again, and O_NONBLOCK
    would hold for all processes that share it (open(2)). After poll(2) reports room, another
    process may fill it: so a timer interrupts a write that waits. Up to PIPE_BUF bytes are written
    to a pipe as a whole or not at all (pipe(7)). Raises OSError: BlockingIOError where nothing was
    written.
    """
    if not IS_LINUX:
        return write(fd, data)
    alarm, handler, mask, timer = signals.SIGALRM, None, None, None
    try:
        try:
            handler = signals.signal(alarm, lambda *_: None)
            mask = pthread_sigmask(signals.SIG_UNBLOCK, [alarm])
            timer = setitimer(signals.ITIMER_REAL, AT_ONCE_S, AT_ONCE_S)
        except (OSError, ValueError):  # refused, as in any thread but the main one
            pass
        written = call("write", fd, data, len(data))  # os.write would retry after EINTR
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
    """Call ioctl(2) and return the changed argument. Raises OSError."""
    from fcntl import ioctl

    return ioctl(fd, request, argument)


def size_of(pipe: int) -> int:
    """The number of bytes that a pipe holds now."""
    import termios  # only needed when a worker has ended

    return int.from_bytes(ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


UNLIMITED = -1  # RLIM_INFINITY, as Python's resource has it


def getrlimit() -> tuple[int, int]:
    """The limits of open descriptors of this process: the soft one and the hard one."""
    import resource  # only needed for a hundred workers and more

    return resource.getrlimit(resource.RLIMIT_NOFILE)


def setrlimit(limits: tuple[int, int]) -> None:
    """Set the two limits of descriptors; the soft one may be raised up to the hard one."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# Sockets of `_socket`: `socket` adds enums and selectors, 5 ms of every launch


def socket(family: int, kind: int) -> Any:
    """Return a socket (socket(2)), which closes with its last reference. Raises OSError."""
    import _socket

    class socket(_socket.socket):  # closes without a ResourceWarning (PYTHONWARNINGS=error)
        __del__ = _socket.socket.close

    return socket(family, kind)


def accept(listener: Any) -> tuple[Any, Any]:
    """Return a new connection and its peer's address. Raises OSError where none has come."""
    import _socket

    fd, address = listener._accept()
    return _socket.socket(fileno=fd), address


def socketpair() -> tuple[Any, Any]:
    """Return two connected sockets (socketpair(2)). Raises OSError."""
    import socket

    return socket.socketpair()


def connect_local(address: str) -> tuple[Any, int, int]:
    """Connect to a Unix socket (unix(7)); return the socket, and the listener's pid and user id.

    It does not wait. Raises OSError where no process listens, or the listener's queue is full.
    """
    import socket

    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.setblocking(False)
        client.connect(address)
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except OSError:
        client.close()
        raise
    pid, uid = (int.from_bytes(credentials[i : i + 4], sys.byteorder) for i in (0, 4))
    return client, pid, uid


def send_fds(to: Any, parts: list[bytes], fds: Sequence[int]) -> int:
    """Send bytes together with descriptors (unix(7), SCM_RIGHTS). Raises OSError."""
    import socket

    return socket.send_fds(to, parts, fds)


def recv_fds(of: Any, size: int, most: int) -> tuple[bytes, list[int]]:
    """Receive at most `size` bytes and `most` descriptors with them. Raises OSError."""
    import socket

    return socket.recv_fds(of, size, most)[:2]


def getaddrinfo(name: str, port: int | None, *options: int) -> Any:
    """Look up the addresses of a name (getaddrinfo(3)); `options`: family, kind, protocol, flags.

    It takes as long as the name servers. Raises OSError.
    """
    import _socket

    # For text Python loads its Unicode tables first, a quarter of a mebibyte, and may refuse it.
    return _socket.getaddrinfo(name.encode() if name.isascii() else name, port, *options)


# Files

access, fchmod, listdir, lstat = os.access, os.fchmod, os.listdir, os.lstat
mkdir, open, readlink = os.mkdir, os.open, os.readlink
replace, rmdir, stat, symlink, unlink = os.replace, os.rmdir, os.stat, os.symlink, os.unlink
exists, isdir, isfile, islink = os.path.exists, os.path.isdir, os.path.isfile, os.path.islink


def content(path: str, most: int = 1 << 30) -> bytes:
    """Return the bytes of a file, at most `most`. Raises OSError."""
    fd = open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while most > 0 and (part := read(fd, min(most, 1 << 16))):
            parts.append(part)
            most -= len(part)
        return b"".join(parts)
    finally:
        close(fd)


def remove_tree(path: str) -> None:
    """Remove a directory with all that is in it; no link is followed. Raises OSError."""
    import shutil  # it takes milliseconds, and is seldom needed

    shutil.rmtree(path)


def name_of_user(uid: int) -> str:
    """Return the user's name from the machine's list (getpwuid(3)), else such as "user 1000"."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


# The name, command line and environment that ps and /proc show of this process


def rename_process(name: str, title: str) -> None:
    """Show `name` (15 bytes at most) as command in ps, and `title` as command line."""
    if IS_LINUX:
        prctl(PR_SET_NAME, os.fsencode(name)[:15])
        # There lie the words of the command line, each with its NUL. Python has copied them.
        _overwrite(48, lambda room: os.fsencode(title)[: room - 1])


def show_environment(environ: Mapping[str, str]) -> None:
    """Show these variables in /proc/PID/environ, in their order, as many as there is room for.

    Call it only when this process no longer uses the memory of its first environment.
    """
    text = b"".join(os.fsencode(f"{name}={value}\0") for name, value in environ.items())
    if IS_LINUX:
        _overwrite(50, lambda room: text[: text.rfind(b"\0", 0, room) + 1])  # no variable is cut


def _overwrite(field: int, fitting: Callable[[int], bytes]) -> None:
    """Overwrite this process's memory between two addresses: this field of its stat, and the next.

    `fitting` gets the room in bytes (proc(5), /proc/PID/stat, arg_start and env_start).
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

    For the kernel the parent is the thread that forked this process; `parent` is that thread's
    process. It may have ended before the call, so the function checks that afterwards. The setting
    survives exec; children do not inherit it.
    """
    if prctl(PR_SET_PDEATHSIG, signum) and getppid() != parent:
        exit_now(128 + signum)
