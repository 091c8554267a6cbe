"""Report what a process finds itself with; what it draws at random stands apart, in "drawn"."""

import gc
import multiprocessing
import os
import random
import signal
import sys

import numpy

from tests.workers.reporting import report


def open_fds() -> list[int]:
    """The descriptors that are open, without that of the listing."""
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            os.fstat(fd)
        except OSError:
            continue
        found.append(fd)
    return sorted(found)


def masks() -> dict[str, int]:
    """The signals that are blocked, ignored and caught, but for those of glibc's own use."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    return {name: int(fields[name], 16) & 0x7FFFFFFF for name in ("SigBlk", "SigIgn", "SigCgt")}


def stream(one: object) -> dict[str, object]:
    """How a stream of Python's is made."""
    names = ("encoding", "errors", "line_buffering", "write_through")
    return {name: getattr(one, name) for name in names}


def threads() -> int:
    """How many there are once OpenBLAS has computed something; of our own there is none."""
    numpy.ones((300, 300)).dot(numpy.ones((300, 300)))
    return len(os.listdir("/proc/self/task"))


if __name__ == "__main__":
    report(
        argv=sys.argv,
        orig_argv=sys.orig_argv,
        name=__name__,
        file=__file__,
        path=[each for each in sys.path if os.path.exists(each)],
        cwd=os.getcwd(),
        fds=open_fds(),
        masks=masks(),
        interrupt=repr(signal.getsignal(signal.SIGINT)).partition(" at ")[0],
        out=stream(sys.stdout),
        err=stream(sys.stderr),
        is_same=(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__),
        threads=threads(),
        collects=gc.isenabled(),
        drawn={
            "random": random.random(),
            "numpy": numpy.random.rand(),
            "key": multiprocessing.current_process().authkey.hex(),
        },
    )
