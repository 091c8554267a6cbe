"""Whether a process that has imported something may be forked.

A fork takes one thread along. What another thread held at that moment, a lock or a device, is lost
in the child. Threads of OpenBLAS are no danger: it ends them before a fork and starts them anew
when they are needed (its pthread_atfork handlers).
"""

from __future__ import annotations

import os
import sys
import threading

from spawnlaunch.run import blas

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")
HARMLESS_THREADS = ("jemalloc_bg_thd",)  # started anew in a child by itself


def open_fds() -> Iterator[int]:
    """The descriptors of this process."""
    for name in os.listdir("/dev/fd"):
        try:
            os.fstat(int(name))
        except OSError:
            continue  # the one that listed the directory
        yield int(name)


def objections() -> Iterator[str]:
    """Why this process must not be forked, if there is anything."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        yield "CUDA is initialised"
    for fd in open_fds():
        target = _target(fd)
        if target.startswith(DEVICES):
            yield f"{target} is open, the driver of a device"
    python = [thread.name for thread in threading.enumerate() if thread.ident != _main_ident()]
    if python:
        yield f"there is a thread {python[0]!r}"
    native = [name for name in _native_threads() if name not in HARMLESS_THREADS]
    idle = sum(copy.threads - 1 for copy in blas.copies())
    if len(native) > len(python) + idle:
        yield f"there are {len(native)} threads that are neither Python's nor OpenBLAS's"


def _main_ident() -> int | None:
    return threading.main_thread().ident


def _target(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def _native_threads() -> Iterator[str]:
    """The names of all threads but the main one."""
    try:
        main = os.readlink("/proc/self")  # which is not our pid in another namespace's /proc
        threads = [name for name in os.listdir("/proc/self/task") if name != main]
    except OSError:
        return
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/comm") as file:
                yield file.read().strip()
        except OSError:
            continue  # it has just ended
