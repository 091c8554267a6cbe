"""What Python has no name for: calls of the C library, prctl, and pidfds in an older build.

Sources: prctl(2), pidfd_open(2), pidfd_send_signal(2), proc(5) ("/proc/pid/cmdline" and fields 48
to 51 of "/proc/pid/stat"). The numbers of the pidfd calls are the same on every architecture.

`_ctypes` is the part of `ctypes` that is written in C. It is imported in half a millisecond,
`ctypes` in three.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from spawnlaunch.node import proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping
else:
    import _signal as signal

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


def call(name: str, *arguments: int | bytes) -> int:
    """Call a function whose result is an int: the result, or -n where it was -1 with errno n.

    Numbers are passed as long: of a shorter one, a variadic function would find whatever was in the
    upper half of the register. `bytes` are passed as their address. Only where IS_LINUX.
    """
    function = _Function(_ctypes.dlsym(_library, name))
    result = function(*(each if isinstance(each, bytes) else _Long(each) for each in arguments))
    return -_ctypes.get_errno() if result == -1 else int(result)


def prctl(option: int, value: int | bytes) -> bool:
    """Ask the kernel for this of this process; False where it refuses (prctl(2))."""
    return IS_LINUX and call("prctl", option, value, 0, 0, 0) == 0


def size_of(pipe: int) -> int:
    """How many bytes a pipe holds."""
    import fcntl  # needed when a worker has ended
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def die_with_parent(parent: int, signum: int = signal.SIGKILL) -> None:
    """Have the kernel kill this process, or send it another signal, when its parent ends.

    The parent is the thread that forked it, `parent` that thread's process; it may have ended
    before the kernel was asked, so that is looked at afterwards. The setting survives exec, and is
    not inherited by children.
    """
    if prctl(PR_SET_PDEATHSIG, signum) and os.getppid() != parent:
        os._exit(128 + signum)


def rename(name: str, title: str) -> None:
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

    `fitting` is given the room in bytes.
    """
    with suppress(OSError):
        start, end = map(int, proc.stat("self")[field - 1 : field + 1])
        room = end - start
        if 0 < start < end:
            call("memmove", start, fitting(room).ljust(room, b"\0"), room)


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


def signal_pidfd(fd: int, signum: int) -> None:
    """Signal the process behind a descriptor; nothing happens where it is gone or not ours."""
    if not hasattr(signal, "pidfd_send_signal"):
        call("syscall", SYS_PIDFD_SEND_SIGNAL, fd, signum, 0, 0)
        return
    with suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(fd, signum)
