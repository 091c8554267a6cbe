"""py-spy, where it is installed: the Python stacks of a process that has no part in telling them.

It reads the other's memory, which needs the right to trace it: as root, or where the kernel lets
a process trace others of its user (ptrace(2), "Ptrace access mode checking"). `--nonblocking`
leaves the process running; who hangs does not change its stack under the reader.
"""

from __future__ import annotations

import os
import signal
import sys

from spawnlaunch.run import kernel
from spawnlaunch.run.loop import Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 10.0
CHUNK_BYTES = 1 << 16


def find() -> str | None:
    """The program: beside our interpreter, or on PATH."""
    for place in (os.path.dirname(sys.executable), *os.get_exec_path()):
        path = os.path.join(place, "py-spy")
        if os.access(path, os.X_OK):
            return path
    return None


class Spying:
    """One run of py-spy; `told` gets the stacks, or "" and the reason why there are none.

    Raises OSError where it cannot be started. It is a child of ours, reaped by who reaps orphans.
    """

    def __init__(self, program: str, pid: int, loop: Loop, told: Callable[[str, str], None]):
        self._loop = loop
        self._told = told
        self._text = b""
        self._fd, theirs = os.pipe()
        command = [program, "dump", "--nonblocking", "--pid", str(pid)]
        output = [(os.POSIX_SPAWN_DUP2, theirs, fd) for fd in (1, 2)]
        try:
            child = os.posix_spawn(program, command, os.environ, file_actions=output, setsigmask=())
        except OSError:
            os.close(self._fd)
            raise
        finally:
            os.close(theirs)
        self._pidfd = kernel.open_pidfd(child)
        loop.watch(self._fd, self._read)
        loop.alarm(self._too_late, PATIENCE_S)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._loop.alarm(self._too_late, None)
        self._loop.forget(self._fd)
        os.close(self._fd)
        if self._pidfd is not None:
            kernel.signal_pidfd(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)

    def _too_late(self) -> None:
        self.cancel()
        self._told("", f"no answer in {PATIENCE_S:g} s")

    def _read(self) -> None:
        chunk = os.read(self._fd, CHUNK_BYTES)
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
