"""The stacks of a process that does not tell them itself: from py-spy, where it is installed, or
from the kernel. `--hang-timeout`, SIGUSR2 and `top` ask here.

py-spy reads the other's memory, which needs the right to trace it: as root, or where the kernel
lets a process trace others of its user (ptrace(2), "Ptrace access mode checking"). `--nonblocking`
leaves the process running; who hangs does not change its stack under the reader.

The kernel tells for each thread the state, the kernel function that it waits in (wchan), and its
system call; its kernel stack as well where we may read it, which is root's. Threads that do the
same share a line. Source: proc(5).
"""

from __future__ import annotations

import os
import sys
from types import MappingProxyType

from spawnlaunch import machine
from spawnlaunch.node import proc
from spawnlaunch.run.signals import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from spawnlaunch.run import events

PATIENCE_S = 10.0  # with py-spy
CHUNK_BYTES = 1 << 16

STATES = MappingProxyType({
    "R": "running", "S": "sleeping", "D": "in uninterruptible sleep", "T": "stopped",
    "t": "stopped by a debugger", "Z": "ended", "I": "idle",
})  # fmt: skip

# Calls that wait. Sources: Linux, arch/x86/entry/syscalls/syscall_64.tbl, and
# include/uapi/asm-generic/unistd.h.
CALLS: Mapping[str, Mapping[int, str]] = MappingProxyType({
    "x86_64": MappingProxyType({
        0: "read", 1: "write", 7: "poll", 16: "ioctl", 23: "select", 35: "nanosleep",
        42: "connect", 43: "accept", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4",
        73: "flock", 74: "fsync", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait",
        247: "waitid", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4",
    }),
    "aarch64": MappingProxyType({
        22: "epoll_pwait", 29: "ioctl", 32: "flock", 63: "read", 64: "write", 72: "pselect6",
        73: "ppoll", 82: "fsync", 95: "waitid", 98: "futex", 101: "nanosleep",
        115: "clock_nanosleep", 202: "accept", 203: "connect", 207: "recvfrom", 211: "sendmsg",
        212: "recvmsg", 242: "accept4", 260: "wait4",
    }),
})  # fmt: skip
MOST_FRAMES = 6


def find_py_spy() -> str | None:
    """The program: beside our interpreter, or on PATH."""
    for place in (os.path.dirname(sys.executable), *os.get_exec_path()):
        path = os.path.join(place, "py-spy")
        if machine.access(path, os.X_OK):
            return path
    return None


def look(pid: int, loop: events.Loop, told: Callable[[str, str], None]) -> Spying | None:
    """Ask py-spy, and where it tells nothing, the kernel.

    `told` gets how it was told, and the text, which is "" of a process that has ended. The result
    is the run of py-spy, if there is one, until then.
    """

    def spied(text: str, why: str) -> None:
        told(*(("by py-spy", text) if text else by_the_kernel(pid, f" (py-spy: {why})")))

    program = find_py_spy()
    if program is None:
        told(*by_the_kernel(pid))
        return None
    try:
        return Spying(program, pid, loop, spied)
    except OSError as error:
        spied("", str(error.strerror))
        return None


def by_the_kernel(pid: int, why: str = "") -> tuple[str, str]:
    """How that is told, with the reason, and the text."""
    return f"as the kernel sees it{why}", "".join(f"{line}\n" for line in kernel_view(pid))


class Spying:
    """One run of py-spy; `told` gets the stacks, or "" and the reason why there are none.

    Raises OSError where it cannot be started. It is a child of ours, reaped by who reaps orphans.
    """

    def __init__(self, program: str, pid: int, loop: events.Loop, told: Callable[[str, str], None]):
        self._loop = loop
        self._told = told
        self._text = b""
        self._fd, theirs = machine.pipe()
        command = [program, "dump", "--full-filenames", "--nonblocking", "--pid", str(pid)]
        output = [(os.POSIX_SPAWN_DUP2, theirs, fd) for fd in (1, 2)]
        try:
            child = machine.posix_spawn(
                program, command, os.environ, file_actions=output, setsigmask=()
            )
        except OSError:
            machine.close(self._fd)
            raise
        finally:
            machine.close(theirs)
        self._pidfd = machine.open_pidfd(child)
        loop.watch(self._fd, self._read)
        loop.alarm(self._too_late, PATIENCE_S)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._loop.alarm(self._too_late, None)
        self._loop.forget(self._fd)
        machine.close(self._fd)
        if self._pidfd is not None:
            machine.signal_pidfd(self._pidfd, signal.SIGKILL)
            machine.close(self._pidfd)

    def _too_late(self) -> None:
        self.cancel()
        self._told("", f"no answer in {PATIENCE_S:g} s")

    def _read(self) -> None:
        chunk = machine.read(self._fd, CHUNK_BYTES)
        self._text += chunk
        if not chunk:
            self.cancel()
            text = self._text.decode(errors="replace")
            if "\nThread " in text:
                self._told(text, "")
            else:
                self._told("", _reason(text))


def _reason(text: str) -> str:
    lines = text.splitlines()
    return lines[0].removeprefix("Error: ").rstrip(".") if lines else "said nothing"


def kernel_view(pid: int) -> list[str]:
    """A line for each group of threads that do the same; none where the process has ended."""
    groups: dict[str, list[int]] = {}
    for thread in _threads(pid):
        doing = _doing(f"{pid}/task/{thread}")
        if doing:
            groups.setdefault(doing, []).append(thread)
    return [f"{_listed(threads)} {doing}" for doing, threads in groups.items()]


def _threads(pid: int) -> Iterator[int]:
    try:
        yield from sorted(map(int, machine.listdir(f"/proc/{pid}/task")))
    except OSError:
        return


def _listed(threads: list[int]) -> str:
    if len(threads) == 1:
        return f"thread {threads[0]}"
    return f"{len(threads)} threads, {threads[0]} to {threads[-1]},"


def _doing(thread: str) -> str:
    """In words; "" where the thread has ended. `thread` is the part of its path below /proc."""
    try:
        _, name, state, *_ = (field.decode(errors="replace") for field in proc.stat(thread))
    except OSError:
        return ""
    words = f"({name}) {STATES.get(state, state)}"
    place = (proc.read(thread, "wchan") or "").strip()
    if place not in ("", "0"):
        words += f" in {place}"
    call = (proc.read(thread, "syscall") or "").split()
    if call and call[0].isdigit():
        number = int(call[0])
        words += f", system call {CALLS.get(machine.uname().machine, {}).get(number, str(number))}"
    stack = (proc.read(thread, "stack") or "").splitlines()
    frames = [line.split()[-1].partition("+")[0] for line in stack]
    if frames:
        words += f", kernel stack {' < '.join(frames[:MOST_FRAMES])}"
    return words
