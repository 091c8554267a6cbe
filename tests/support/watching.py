"""Start a launcher, and see when the last process that came from it has gone.

All of them inherit the end of a pipe, whatever session, parents or environment they have given up;
so its end is the end of all.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.launching import LAUNCHER, clean_environ
from tests.support.patience import PATIENCE_S
from tests.support.processes import children, until

KILLED = 128 + signal.SIGKILL


class Launch:
    """A launcher that runs."""

    def __init__(self, launcher: subprocess.Popen[bytes], stderr: Path, held: int) -> None:
        self.launcher = launcher
        self.pid = launcher.pid
        self._stderr = stderr
        self.held = held  # by every process that comes from the launcher
        self.output = b""

    @property
    def stderr(self) -> str:
        """What was said on stderr so far."""
        return self._stderr.read_text(errors="replace")

    @property
    def guard(self) -> int:
        """The pid of the guard, once there is one."""
        found: list[int] = []

        def one_child() -> bool:
            found[:] = children(self.pid)
            return bool(found)

        until(one_child, "the guard has started")
        return found[0]

    @property
    def workers(self) -> list[int]:
        """The pids of the guard's children."""
        return children(self.guard)

    def read_until(self, count: int, word: str = "ready") -> None:
        """Wait until the workers have printed so many lines that begin with a word."""
        deadline = time.monotonic() + PATIENCE_S * 3
        while sum(line.startswith(word.encode()) for line in self.output.split(b"\n")) < count:
            assert time.monotonic() < deadline, (self.output[-2000:], self.stderr)
            assert self._read(0.1) is not False, (self.output[-2000:], self.stderr)

    def _read(self, timeout_s: float) -> bool | None:
        """True: some output, False: its end, None: nothing yet."""
        assert self.launcher.stdout
        fd = self.launcher.stdout.fileno()
        if not select.select([fd], [], [], timeout_s)[0]:
            return None
        data = os.read(fd, 1 << 16)
        self.output += data
        return bool(data)

    def send(self, signum: int, pid: int | None = None) -> None:
        """Signal the launcher, or another process."""
        os.kill(pid or self.pid, signum)

    def status(self, within_s: float = PATIENCE_S) -> int:
        """The exit status of the launcher, as a shell gives it; its output is read meanwhile."""
        deadline = time.monotonic() + within_s
        while self.launcher.poll() is None:
            assert time.monotonic() < deadline, f"the launcher still runs\n{self.stderr}"
            if self._read(0.01) is False:
                time.sleep(0.01)
        while self._read(0.0):
            pass
        code = self.launcher.returncode
        return code if code >= 0 else 128 - code

    def rest(self) -> str:
        """All that was written to stdout, once nobody writes any more."""
        while self._read(PATIENCE_S):
            pass
        return self.output.decode(errors="replace")

    def all_gone(self, within_s: float = PATIENCE_S) -> bool:
        """Whether every process that came from the launcher has ended, at the latest by then."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if select.select([self.held], [], [], 0.0)[0]:
                return True
            if self._read(0.02) is False:
                time.sleep(0.005)
        return False


@contextmanager
def launched(
    *words: object, directory: Path, environ: Mapping[str, str] | None = None,
    preexec: Callable[[], None] | None = None, command: tuple[str, ...] = LAUNCHER,
) -> Iterator[Launch]:  # fmt: skip
    """A launcher of `words`, with its TMPDIR and the file of its stderr below `directory`."""
    stderr, scratch = directory / "stderr", directory / "tmp"
    scratch.mkdir(exist_ok=True)
    held, theirs = os.pipe()
    with stderr.open("wb") as file:
        launcher = subprocess.Popen(
            [*command, "--quiet", *map(str, words)],
            env=clean_environ(**{"TMPDIR": str(scratch), **(environ or {})}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            preexec_fn=preexec,
            pass_fds=[theirs],
        )
    os.close(theirs)
    launch = Launch(launcher, stderr, held)
    try:
        yield launch
    finally:
        if launcher.poll() is None:
            launcher.kill()
            launcher.wait()
        assert launch.all_gone(), f"processes of the launch are left\n{launch.stderr}"
        if launcher.stdout:
            launcher.stdout.close()
        os.close(held)
        assert not list(scratch.glob("spawnlaunch-*"))
