"""Look up the address of a name in a child process.

getaddrinfo(3) waits for name servers that do not answer, and cannot be interrupted. A thread would
hold locks of the C library while this process forks. So a child calls it, and dies with this
process.
"""

from __future__ import annotations

import _socket as socket
import json
from contextlib import suppress

from spawnlaunch.base import machine
from spawnlaunch.node import proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    Address: TypeAlias = tuple[int, tuple[Any, ...]]  # family, and address as connect(2) wants it
else:
    import _signal as signal

HAS_CHILDREN = machine.IS_LINUX  # elsewhere getaddrinfo(3) may not work after a fork
MOST_BYTES = 4096  # of an answer; a pipe takes them in one write (pipe(7))
MOST_ADDRESSES = 16  # addresses of one name


def find(names: Sequence[str], port: int, flags: int = 0) -> list[Address]:
    """The addresses of the first of these names that has any. Raises OSError."""
    failure = OSError("no name")
    for name in names:
        try:
            infos = machine.getaddrinfo(name, port, 0, socket.SOCK_STREAM, 0, flags)
        except OSError as error:
            failure = error
        except UnicodeError:  # as for a part of more than 63 letters, one of which is not ASCII
            failure = OSError(0, f"{name} is not a host name")
        else:
            return [(family, address) for family, *_, address in infos[:MOST_ADDRESSES]]
    raise failure


def numeric(name: str, port: int) -> list[Address]:
    """Parse a numeric address; [] for a name, which a name server has to look up."""
    with suppress(OSError):
        return find((name,), port, socket.AI_NUMERICHOST)
    return []


class Lookup:
    """A child process that looks up one name; `fd` becomes readable with its answer."""

    def __init__(self, look_up: Callable[[], Any]) -> None:
        """Start the child. `look_up` returns a JSON value or raises OSError.

        Raises OSError where no child can be started.
        """
        parent = machine.getpid()
        self.fd, outlet = machine.pipe()
        try:
            self._pid = machine.fork(lambda: _answer(look_up, parent, outlet))
        except OSError:
            machine.close(self.fd)
            machine.close(outlet)
            raise
        machine.close(outlet)

    def answer(self) -> Any:
        """Return the child's answer, after `fd` is readable. Raises the OSError of the look-up."""
        text = machine.read(self.fd, MOST_BYTES)
        self.end()
        code, why, value = json.loads(
            text or '[0, "the process that looked it up was killed", null]'
        )
        if value is None:
            raise OSError(code, why)
        return value

    def addresses(self) -> list[Address]:
        """Return the answer as addresses to connect to. Raises OSError."""
        return [(family, tuple(address)) for family, address in self.answer()]

    def end(self) -> None:
        """End the child, with or without its answer."""
        machine.close(self.fd)
        with suppress(OSError):
            machine.kill(self._pid, signal.SIGKILL)
            machine.waitpid(self._pid, 0)


def _answer(look_up: Callable[[], Any], parent: int, outlet: int) -> None:
    """Call `look_up` in the child and write the answer.

    The child closes the parent's descriptors: a pipe or socket must end when the parent closes it.
    """
    machine.set_wakeup_fd(-1)
    machine.die_with_parent(parent)
    machine.rename_process("spawnlaunch dns", f"spawnlaunch looks up a name for {parent}")
    for fd in proc.open_fds():
        if fd > 2 and fd != outlet:
            machine.close(fd)
    try:
        answer = (0, "", look_up())
    except OSError as error:
        answer = (error.errno or 0, error.strerror or str(error), None)
    machine.write(outlet, json.dumps(answer).encode()[:MOST_BYTES])
    machine.exit_now(0)
