"""The same small programs on Linux and in the simulation: what they saw has to be the same."""

import difflib
import os
import signal
import tempfile
import traceback
from collections.abc import Iterable
from typing import Any

from spawnlaunch.base import machine
from tests.machine.conformance import descriptors, pipes, processes, signals, sockets
from tests.machine.conformance.programs import PROGRAMS, Program
from tests.machine.descriptors import Null, Regular
from tests.machine.door import Door
from tests.machine.files import Inode
from tests.machine.kernel import Kernel
from tests.machine.node import Node

__all__ = ["PROGRAMS", "descriptors", "differences", "pipes", "processes", "signals", "sockets"]

AT_ONCE = 16


def _adapter(door: Any, notes: int, directory: str) -> Any:
    class M:
        def __getattr__(self, name: str) -> Any:
            return getattr(door, name)

        def signal(self, signum: int, handler: Any) -> Any:
            return door.signal(signum, handler if callable(handler) else int(handler))

    made = M()
    made.notes, made.directory = notes, directory  # type: ignore[attr-defined]
    return made


def on_linux(names: Iterable[str], directory: str) -> dict[str, str]:
    """What each of these programs saw on the machine itself, in a process of its own.

    Much of it is waiting: so several run at a time.
    """
    waiting, running, seen = list(names), {}, {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop()
            place = tempfile.mkdtemp(dir=directory)
            running[_begun(PROGRAMS[name], place)] = name, place
        pid, status = os.wait()
        name, place = running.pop(pid)
        with open(os.path.join(place, "notes")) as file:
            seen[name] = file.read() + f"status {os.waitstatus_to_exitcode(status)}\n"
    return seen


def _begun(run: Program, place: str) -> int:
    work = os.path.join(place, "work")
    os.makedirs(work)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(os.path.join(place, "notes"), flags), 3)
            os.closerange(4, 200)
            os.setpgid(0, 0)
            signal.alarm(60)
            run(_adapter(machine, 3, work))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def simulated(run: Program, seed: int = 0) -> str:
    """What it saw in the simulation."""
    kernel = Kernel(seed, restless=1.0 if seed % 2 else 0.0)
    node = Node(kernel, "node0")
    inode = Inode(0o100000, 0o600)
    door = Door(kernel)

    def main(process: Any) -> int:
        process.fds[3] = Regular(inode, appends=True).held(), False
        for fd in range(3):
            process.fds[fd] = Null().held(), True
        process.group = process.pid
        process.handlers[signal.SIGINT] = signal.default_int_handler
        process.handlers[int(signal.SIGPIPE)] = signal.SIG_IGN
        process.handlers[int(signal.SIGXFSZ)] = signal.SIG_IGN
        run(_adapter(door, 3, "/work"))
        return 0

    shell = node.start(lambda process: door.sleep(1e6))  # in whose session it is
    process = node.start(main, shell)
    shell.group = shell.session = process.session = shell.pid
    kernel.run(60)
    kernel.close()
    text = inode.content.decode() + f"status {process.code}\n"
    return text + "".join(kernel.tracebacks)


def differences(names: Iterable[str], tries: int = 3) -> dict[str, str]:
    """By program, what it saw on Linux and in the simulation, where that is not the same.

    On a busy machine a program's waits may be too short: it is tried again.
    """
    made = {name: simulated(PROGRAMS[name]) for name in names}
    differing = dict.fromkeys(made, "")
    for _ in range(tries):
        with tempfile.TemporaryDirectory() as directory:
            real = on_linux(differing, directory)
        differing = {name: text for name, text in real.items() if text != made[name]}
        if not differing:
            break
    return {
        name: "\n".join(difflib.ndiff(text.splitlines(), made[name].splitlines()))
        for name, text in differing.items()
    }
