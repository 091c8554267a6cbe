"""What a launch looks up in file systems, as strace(1) sees it.

Each look-up is a question to the shared file system of a cluster, times all ranks. A worker's own,
from its exec on, do not count.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.counts.imported import at_once
from tests.counts.ways import Way
from tests.support.launching import run

STATS = ("stat", "lstat", "fstat", "newfstatat", "statx")  # one or the other, by C library
OPENS = ("open", "openat", "openat2", "creat")
KERNEL = ("/sys/", "/proc/", "/dev/")
CALL = re.compile(r'(\w+)\((?:[^"]*?"(.*?)")?.*= (-?\d+)')


class Call(NamedTuple):
    """A system call with a path, or with a file that is open."""

    name: str
    path: str
    result: int


class Lookups(NamedTuple):
    """How often something was looked up."""

    stats: int
    opens: int

    @property
    def both(self) -> int:
        """What counts."""
        return self.stats + self.opens


class Opened(NamedTuple):
    """Files and directories that were opened."""

    files: int
    of_the_kernel: int  # kinds of them: how often a process is looked at depends on when it ends


def traced(way: Way, directory: Path, *words: str) -> list[Call]:
    """The calls of a Python that runs these words, once all is compiled."""
    compiled = {"PYTHONPYCACHEPREFIX": str(directory / "cache"), "PYTHONDONTWRITEBYTECODE": ""}
    environ = way.environ(**compiled)
    run(sys.executable, *words, environ=environ, cwd=directory, check=True)
    trace = directory / "trace"
    run(*strace(trace), sys.executable, *words, environ=environ, cwd=directory, check=True)
    return list(calls_in(trace.read_text()))


def strace(trace: object) -> tuple[str, ...]:
    """What precedes a command whose calls are to be written to a file."""
    calls = f"trace=execve,?{',?'.join((*STATS, *OPENS))}"
    return ("strace", "-f", "-qq", "-e", "signal=none", "-e", calls, "-o", str(trace))


def lookups(calls: Iterable[Call]) -> Lookups:
    """How many of each kind there are."""
    names = [call.name for call in calls]
    return Lookups(sum(name in STATS for name in names), sum(name in OPENS for name in names))


def of_the_kernel(calls: Iterable[Call]) -> int:
    """How many are of the kernel's own files, which no server of a site hears of."""
    return sum(call.path.startswith(KERNEL) for call in calls)


def opened(calls: Iterable[Call]) -> Opened:
    """What was opened, but for what a launch opens only when it has lasted."""
    done = (call for call in calls if call.name in OPENS and call.result >= 0)
    paths = at_once(call.path for call in done)
    kernel = [path for path in paths if path.startswith(KERNEL)]
    return Opened(len(paths) - len(kernel), len({re.sub(r"\d+", "N", path) for path in kernel}))


def calls_in(trace: str) -> Iterator[Call]:
    """The calls in what `strace -f` wrote, but for those of workers, which are `python -u`."""
    workers = set()
    begun: dict[str, str] = {}  # calls by pid that a line of another process has interrupted
    for line in trace.splitlines():
        pid, call = line.split(maxsplit=1)
        if call.endswith("<unfinished ...>"):
            begun[pid] = call
            continue
        call = begun.pop(pid, "") + call
        if call.startswith("execve(") and '"-u"' in call:
            workers.add(pid)
        elif pid not in workers and (found := CALL.match(call)):
            name, path, result = found.groups()
            yield Call(name, path or "", int(result))
