"""What a launch looks up in file systems, as strace(1) sees it.

Each look-up is a question to the shared file system of a cluster, times all ranks. A worker's own,
from its exec on, do not count.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.counts.ways import Way
from tests.support.launching import run

STATS = ("stat", "lstat", "fstat", "newfstatat", "statx")  # one or the other, by C library
OPENS = ("open", "openat", "openat2", "creat")
KERNEL = ("/sys/", "/proc/", "/dev/")
CALL = re.compile(r'(\w+)\((?:[^"]*?"(.*?)")?.*= -?\d+')


class Call(NamedTuple):
    """A system call with a path, or with a file that is open."""

    name: str
    path: str


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


def lookups(calls: Sequence[Call]) -> int:
    """How many files were looked up or opened."""
    return sum(call.name in (*STATS, *OPENS) for call in calls)


def of_the_kernel(calls: Sequence[Call]) -> int:
    """How many are of the kernel's own files, which no server of a site hears of."""
    return sum(call.path.startswith(KERNEL) for call in calls)


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
            yield Call(found[1], found[2] or "")
