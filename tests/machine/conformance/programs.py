"""What the programs are made of that are run on Linux and in the simulation.

A program is a function of the door. It notes what it sees, and so may its children, in one file of
text; programs are written such that only one order of notes is possible.
"""

import errno
import os
import select
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

Program = Callable[[Any], None]

PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def programs(rows: Iterable[Iterable[Any]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A program for each row, whose values are the arguments behind the door."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        for row in map(tuple, rows):
            words = [function.__name__, *(str(getattr(each, "name", each)) for each in row)]
            PROGRAMS[" ".join(words)] = partial(_called, function, row)
        return function

    return add


def _called(function: Callable[..., None], row: tuple[Any, ...], m: Any) -> None:
    function(m, *(int(each) if isinstance(each, int) else each for each in row))


def noted(m: Any, *seen: object) -> None:
    m.write(m.notes, "".join(f"{what}\n" for what in seen).encode())


def tried(m: Any, call: Callable[..., Any], *args: Any) -> Any:
    """The result, or the name of the error."""
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def child_ended(m: Any, pid: int) -> None:
    """Note how a child ends."""
    status = m.waitpid(pid, 0)[1]
    noted(m, ("ended", os.waitstatus_to_exitcode(status)))


def started(m: Any, child: Callable[[], object], ready: bool = True) -> int:
    """A child, which has said that it is ready."""
    r, w = m.pipe()

    def run() -> None:
        m.close(r)
        m.say_ready = lambda: m.write(w, b"x")
        child()
        m.exit_now(0)

    pid = m.fork(run)
    m.close(w)
    if ready:
        m.read(r, 1)
    m.close(r)
    return pid


def next_signal(m: Any, fd: int, within_s: float) -> tuple[int, int] | None:
    """The number and the code of what a signalfd tells; None: nothing."""
    poller = m.poll()
    poller.register(fd, select.POLLIN)
    if not poller.poll(within_s * 1000):
        noted(m, tried(m, m.read, fd, 128))
        return None
    signum, _, code = struct.unpack_from("=Iii", m.read(fd, 128))
    return signum, code
