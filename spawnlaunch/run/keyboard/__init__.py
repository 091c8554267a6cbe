"""What is typed on the terminal of a launch of several workers: it goes to the one that asks.

Each worker has a pipe as its stdin. The terminal is read only when exactly one worker waits for
input, which the kernel tells: a thread of it, or of what it has started, is in read(2) of
descriptor 0 (/proc/PID/syscall, proc(5)). Until then what is typed stays with the terminal, so that
nothing is taken from a shell, or from a worker that asks later. With --debug one worker reads the
terminal itself, and the others' pipes stay empty.
"""

from __future__ import annotations

import os
from contextlib import suppress

from spawnlaunch import cpuset, machine, reading
from spawnlaunch.node import proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from spawnlaunch.run import events, pipes


AGAIN_S = 0.1  # until the next look at who asks, while something typed waits
# Of read(2): arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h.
READ = 0 if machine.uname().machine == "x86_64" else 63


class Keyboard:
    """The terminal, and the workers' ends of it; `running` is by rank those that run now."""

    def __init__(
        self,
        loop: events.Loop,
        sinks: Mapping[int, pipes.Sink],
        say: Callable[[Iterable[str]], None],
        running: Mapping[int, Any],
        debugged: int | None,
    ) -> None:
        self._loop = loop
        self._sinks = sinks
        self._say = say
        self._running = running
        self._ends: dict[int, int] = {}  # by rank
        self._told: list[int] = []  # the ranks that were said to ask all at once
        if debugged is None:
            self._listen()

    def connect(self, rank: int) -> int:
        """The stdin of a worker that is about to be started."""
        self._leave(rank)
        theirs, self._ends[rank] = machine.pipe()
        machine.set_blocking(self._ends[rank], False)
        return theirs

    def _leave(self, rank: int) -> None:
        """Nothing more comes to a rank: it reads the end of its stdin."""
        end = self._ends.pop(rank, None)
        if end is not None:
            machine.close(end)

    def _listen(self) -> None:
        self._loop.watch(0, self._typed)

    def _typed(self) -> None:
        """Something was typed, or the terminal has been closed."""
        asking = sorted(self._asking()) if _is_in_foreground() else []
        if len(asking) == 1:
            self._give(asking[0])
            return
        if asking and asking != self._told:
            self._say([
                f"ranks {cpuset.format(asking)} ask at once, so none gets what you type; "
                f"--debug {asking[0]} gives one the terminal"
            ])  # fmt: skip
            self._told = asking
        self._loop.forget(0)
        self._loop.alarm(self._listen, AGAIN_S)

    def _give(self, rank: int) -> None:
        try:
            typed = machine.read(0, 4096)
        except OSError:  # the terminal is gone
            self._loop.forget(0)
            return
        for sink in self._sinks.values():
            sink.screen.leave_bar()  # the terminal's echo has ended the line
        if typed:
            with suppress(OSError):  # it has ended, or closed its stdin
                machine.write(self._ends[rank], typed)
        else:  # Ctrl-D
            self._leave(rank)

    def _asking(self) -> set[int]:
        """The ranks that wait for input."""
        return {rank for rank in self._ends if rank in self._running and self._asks(rank)}

    def _asks(self, rank: int) -> bool:
        process = proc.look(self._running[rank].pid)
        if process is None or process.dead:
            return False
        return any(_reads(one.pid) for one in proc.below([process]))


def _reads(pid: int) -> bool:
    """Whether a thread waits in read(2) of descriptor 0."""
    try:
        threads = machine.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    calls = (reading.file_text(f"/proc/{pid}/task/{one}/syscall") or "" for one in threads)
    return any(call.split()[:2] == [str(READ), "0x0"] for call in calls)


def _is_in_foreground() -> bool:
    """Whether the terminal is the launcher's to read, and not the shell's."""
    try:
        fields = proc.stat(str(machine.getppid()))
    except OSError:
        return False
    return fields[4] == fields[7]  # its process group, and the terminal's foreground group


def prompt_is_open() -> bool:
    """Whether a program reads the terminal key by key, as readline, pdb and editors do.

    They take Ctrl-C as a key of theirs, and not as the end of the job.
    """
    try:
        fd = machine.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not machine.hands_out_lines(fd)
    finally:
        machine.close(fd)
