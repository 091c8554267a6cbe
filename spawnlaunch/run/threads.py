"""What every thread of a process is doing, as the kernel sees it.

For each thread the state, the kernel function that it waits in (wchan), and its system call; its
kernel stack as well where we may read it, which is root's. Threads that do the same share a line.
Source: proc(5).
"""

from __future__ import annotations

import os
from types import MappingProxyType

from spawnlaunch.reading import file_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


def lines(pid: int) -> list[str]:
    """A line for each group of threads that do the same; none where the process has ended."""
    groups: dict[str, list[int]] = {}
    for thread in _threads(pid):
        doing = _doing(f"/proc/{pid}/task/{thread}")
        if doing:
            groups.setdefault(doing, []).append(thread)
    return [f"{_listed(threads)} {doing}" for doing, threads in groups.items()]


def _threads(pid: int) -> Iterator[int]:
    try:
        yield from sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return


def _listed(threads: list[int]) -> str:
    if len(threads) == 1:
        return f"thread {threads[0]}"
    return f"{len(threads)} threads, {threads[0]} to {threads[-1]},"


def _doing(task: str) -> str:
    """In words; "" where the thread has ended."""
    head, _, rest = (file_text(f"{task}/stat") or "").rpartition(") ")
    if not head:
        return ""
    words = f"({head.partition('(')[2]}) {STATES.get(rest[0], rest[0])}"
    place = (file_text(f"{task}/wchan") or "").strip()
    if place not in ("", "0"):
        words += f" in {place}"
    call = (file_text(f"{task}/syscall") or "").split()
    if call and call[0].isdigit():
        number = int(call[0])
        name = CALLS.get(os.uname().machine, {}).get(number, str(number))
        words += f", system call {name}"
    stack = (file_text(f"{task}/stack") or "").splitlines()
    frames = [line.split()[-1].partition("+")[0] for line in stack]
    if frames:
        words += f", kernel stack {' < '.join(frames[:MOST_FRAMES])}"
    return words
