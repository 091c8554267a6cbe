"""The stacks of a process that does not show them itself, read by py-spy, where it is installed.

py-spy reads the other's memory, which needs the right to trace it: as root, or where the kernel
lets a process trace others of its user (ptrace(2), "Ptrace access mode checking"). `--nonblocking`
leaves the process running; a process that hangs does not change its stack under the reader.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from spawnlaunch.base import events, machine
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc

PATIENCE_S = 10.0  # with py-spy
CHUNK_BYTES = 1 << 16


def find_py_spy() -> str | None:
    """The path of py-spy: beside our interpreter, or on PATH."""
    for place in (os.path.dirname(sys.executable), *os.get_exec_path()):
        path = os.path.join(place, "py-spy")
        if machine.access(path, os.X_OK):
            return path
    return None


def look(pid: int, loop: events.Loop, receive: Callable[[str, str], None]) -> Spying | None:
    """Ask py-spy for the stacks of a process; the result is its run, if there is one.

    `receive` gets the source of the text, and the text: without stacks the reason and the name of
    the program, and "" of a process that has ended.
    """
    program = find_py_spy()
    if program is None:
        receive(*without_stacks(pid, "py-spy is not installed"))
        return None
    try:
        return Spying(program, pid, loop, receive)
    except OSError as error:
        receive(*without_stacks(pid, f"py-spy: {error.strerror}"))
        return None


def without_stacks(pid: int, why: str) -> tuple[str, str]:
    """The reason why there are no stacks, and the process; "" where the process has ended."""
    try:
        name = proc.stat(str(pid))[1].decode(errors="replace")
    except OSError:
        return why, ""
    return why, f"in {name}, without stacks\n"


class Spying:
    """A run of py-spy, a child of ours that is reaped together with orphans.

    Raises OSError where it cannot be started.
    """

    def __init__(
        self, program: str, pid: int, loop: events.Loop, receive: Callable[[str, str], None]
    ) -> None:
        self._pid, self._loop, self._receive = pid, loop, receive
        self._text = bytearray()
        self._fd, their_end = machine.pipe()
        command = [program, "dump", "--full-filenames", "--nonblocking", "--pid", str(pid)]
        output = [(os.POSIX_SPAWN_DUP2, their_end, fd) for fd in (1, 2)]
        try:
            child = machine.posix_spawn(
                program, command, os.environ, file_actions=output, setsigmask=()
            )
        except OSError:
            machine.close(self._fd)
            raise
        finally:
            machine.close(their_end)
        self._pidfd = machine.open_pidfd(child)
        loop.watch(self._fd, self._read)
        loop.alarm(self._too_late, PATIENCE_S)

    def cancel(self) -> None:
        """End py-spy: its answer is not needed any more."""
        self._loop.alarm(self._too_late, None)
        self._loop.forget(self._fd)
        machine.close(self._fd)
        if self._pidfd is not None:
            machine.signal_pidfd(self._pidfd, signal.SIGKILL)
            machine.close(self._pidfd)

    def _too_late(self) -> None:
        self.cancel()
        self._receive(*without_stacks(self._pid, f"py-spy: no answer in {PATIENCE_S:g} s"))

    def _read(self) -> None:
        chunk = machine.read(self._fd, CHUNK_BYTES)
        self._text += chunk
        if chunk:
            return
        self.cancel()
        text = self._text.decode(errors="replace")
        if "\nThread " in text:
            self._receive("by py-spy", text)
        else:
            reason = text.partition("\n")[0].removeprefix("Error: ").rstrip(".")
            self._receive(*without_stacks(self._pid, f"py-spy: {reason or 'printed nothing'}"))
