"""What processes there are, and waiting until something holds."""

import ctypes
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

PTRACE_ATTACH, PTRACE_DETACH = 16, 17  # sys/ptrace.h


def until(holds: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """The children of a process's first thread."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def everybody(pid: int) -> list[int]:
    """A process and all that are below it, the highest first."""
    return [pid, *(below for child in children(pid) for below in everybody(child))]


def state(pid: int) -> str:
    """R, S, D, T (stopped) or Z, as in proc(5); "" where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def hold_by_a_debugger(pid: int) -> Callable[[], None]:
    """As a debugger does that is this process; the result lets it go."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, None, None):
        pytest.skip("this machine lets no process hold another")
    os.waitpid(pid, os.WUNTRACED)

    def let_go() -> None:
        libc.ptrace(PTRACE_DETACH, pid, None, None)
        if pid not in children(os.getpid()):
            with suppress(ChildProcessError):  # who was killed meanwhile is told to us first
                os.waitpid(pid, os.WNOHANG)

    return let_go


def processes_with(mark: str) -> list[int]:
    """The pids of all processes whose environment holds `mark`, zombies aside."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    pids.append(int(entry.name))
            except OSError:
                pass  # it has ended, or is a zombie
    return pids


@contextmanager
def nothing_left_behind(mark: str) -> Iterator[None]:
    """At the end no process may live whose environment holds `mark`."""
    yield
    until(lambda: not processes_with(mark), f"all processes with {mark} have ended")


NET = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")


def sockets(pid: int) -> set[str]:
    """Names of a process's Unix sockets, and kinds of its others."""
    lines = Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]
    named = {line.split()[6]: line.split()[7] for line in lines if "@" in line}
    for kind in NET:
        lines = Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]
        named |= {line.split()[9]: kind for line in lines}
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    found = re.findall(r"socket:\[(\d+)\]", " ".join(links))
    return {named[inode] for inode in found if named.get(inode)}
