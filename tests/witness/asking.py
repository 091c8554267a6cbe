"""Workers that answer, and who asks them.

A script imports the torch of its own directory, an empty file, where nothing of torch's matters:
the thread begins when a module of that name is looked for.
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spawnlaunch.hang import asked
from spawnlaunch.node import proc
from tests.support.launching import clean_environ
from tests.support.patience import PATIENCE_S
from tests.support.processes import until

# Becomes a program that is told its own number, as the launcher does.
TOLD = ("sh", "-c", 'export SPAWNLAUNCH_WITNESS=$$; exec "$@"', "sh")
IDLE = "import sys, torch\nprint('ready', flush=True)\nsys.stdin.read()\n"


class Worker:
    """A worker whose script prints lines, and is given lines."""

    def __init__(self, process: subprocess.Popen[str], stderr: Path) -> None:
        self._process, self._stderr = process, stderr
        self.pid = process.pid

    def line(self) -> str:
        return self._process.stdout.readline().strip()

    def tell(self, line: str = "") -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def ends(self) -> tuple[int, str]:
        """Its status, and what it has written to stderr; its stdin ends."""
        self._process.stdin.close()
        status = self._process.wait(PATIENCE_S)
        return status, self._stderr.read_text()


@contextmanager
def worker(
    directory: Path, script: str = IDLE, *command: str, with_torch: bool = False, **environ: str
) -> Iterator[Worker]:
    """A worker with this script; the command is Python's, but for the script."""
    (directory / "script.py").write_text(script)
    if not with_torch:
        (directory / "torch.py").touch()
    words = [*TOLD, *(command or (sys.executable,)), directory / "script.py"]
    stderr = directory / "stderr"
    with (
        stderr.open("w") as file,
        subprocess.Popen(
            words, env=clean_environ(**environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=file, text=True, cwd=directory,
        ) as process,
    ):  # fmt: skip
        try:
            yield Worker(process, stderr)
        finally:
            process.kill()


def begin_of(pid: int) -> int:
    """When it began: its address has that."""
    found = proc.look(pid)
    assert found
    return found.start


def listens(pid: int) -> bool:
    """Whether a process with this number can be asked."""
    try:
        asked.Question(pid, begin_of(pid)).close()
    except OSError:
        return False
    return True


def answer_of(pid: int, seconds: float = 0.0) -> asked.Testimony:
    """What a worker says, as soon as it has imported torch."""
    found: list[asked.Question] = []

    def is_asked() -> bool:
        try:
            found.append(asked.Question(pid, begin_of(pid), seconds))
        except OSError:
            return False
        return True

    until(is_asked, f"process {pid} can be asked")
    return heard(found[0])


def heard(one: asked.Question) -> asked.Testimony:
    """The whole answer. Raises OSError where none comes."""
    try:
        while True:
            assert select.select([one.fd], [], [], PATIENCE_S)[0], "no answer"
            if answer := one.read():
                return answer
    finally:
        one.close()


def place_of(answer: asked.Testimony) -> str:
    """The function and line of the main thread, the innermost one."""
    for line in answer.threads.splitlines():
        if line.startswith("    "):
            return line.strip().replace(os.path.dirname(_file_in(line)) + "/", "")
    return ""


def _file_in(line: str) -> str:
    return line.partition("(")[2].rpartition(":")[0]


def is_at(pid: int, place: str) -> None:
    """A worker comes there, and says so."""
    until(lambda: place_of(answer_of(pid)) == place, f"process {pid} is at {place}")
