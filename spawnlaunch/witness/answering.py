"""The thread of a worker that answers. A question and its answer, each through a socket of its own:

    {"seconds": 2.0, "every": 0.04}<newline>
    {"threads": "Thread 12 ...", "stacks": [[["step", "train.py", 8], ...], ...],
     "looks": [[1795527719404788887, 0], ...], "when": 1795527719444788887, "seconds": 0.021,
     "dumps": [228717]}<newline><so many bytes>...

`looks` are those at the main thread within that time: nanoseconds since 1970, and which of `stacks`
(the innermost call first) it had. `threads` are the stacks of all threads at the end, as py-spy
writes them. A dump is one of torch's flight recorder (rollcall/flight.py), without stacks: those
would import a large part of torch. `when` they were taken is nanoseconds since 1970. `seconds` of
an answer is the CPU time that it has taken.
"""

from __future__ import annotations

import _thread
import json
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress

from spawnlaunch.witness import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

NAME = ': "MainThread"'  # behind the number of that thread
MOST_FRAMES = 100  # of a stack
MOST_S, LEAST_EVERY_S = 30.0, 0.01  # of what a question may ask for
PATIENCE_S = 1.0  # with who asks, and at a fork with an answer that is under way
# A torch with NCCL has a recorder for that beside the other.
DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")


class Witness:
    """The thread. It ends before a fork, and another begins behind it: of a process of several
    threads that forks Python 3.12 warns. Raises OSError where there is no place to listen at."""

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:  # the start is field 22 of proc(5)
            start = int(file.read().rpartition(b") ")[2].split()[19])
        self._main = _thread.get_ident()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(address(os.getpid(), start))
        self._listener.listen(8)
        self._stop, self._is_told_to_stop = socket.socketpair()
        self._forking, self._running = _thread.allocate_lock(), _thread.allocate_lock()
        self._is_here = True  # and not in a fork
        self._start()
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._leave
        )

    def _start(self) -> None:
        self._running.acquire()
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # there can be no more threads
            self._running.release()

    def _before_fork(self) -> None:
        if self._is_here:
            self._forking.acquire()
            self._stop.send(b".")
            if self._running.acquire(timeout=PATIENCE_S):
                self._is_told_to_stop.recv(1)
                self._running.release()

    def _after_fork(self) -> None:
        if self._is_here:
            if not self._running.locked():  # else it will end, and no other begins
                self._start()
            self._forking.release()

    def _leave(self) -> None:
        self._is_here = False
        for one in (self._listener, self._stop, self._is_told_to_stop):
            one.close()

    def _run(self) -> None:
        try:
            while self._listener in self._ready([self._listener]):
                with suppress(Exception):  # of who asks, or of torch's: the worker does not mind
                    self._hear(self._listener.accept()[0])
        finally:
            self._running.release()

    def _ready(self, files: list[Any], within_s: float | None = None) -> list[Any]:
        """Which of the files can be read: none where the thread is to end, or the time is over."""
        ready = select.select([*files, self._is_told_to_stop], [], [], within_s)[0]
        return [] if self._is_told_to_stop in ready else ready

    def _hear(self, client: socket.socket) -> None:
        with client:
            client.settimeout(PATIENCE_S)
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("3i", credentials)[1] == os.geteuid():
                asked = json.loads(client.recv(1 << 12))
                client.sendall(self._told(client, asked["seconds"], asked["every"]))

    def _told(self, client: socket.socket, seconds: float, every: float) -> bytes:
        began, until = time.thread_time(), time.monotonic() + min(seconds, MOST_S)
        stacks: dict[tuple[Any, ...], int] = {}
        looks = []
        while time.monotonic() < until:
            frames = tuple(_frames(sys._current_frames().get(self._main)))
            looks.append((time.time_ns(), stacks.setdefault(frames, len(stacks))))
            if select.select([client, self._is_told_to_stop], [], [], max(every, LEAST_EVERY_S))[0]:
                break  # who asks has gone, or wants no more
        when, dumps = time.time_ns(), [*_dumps()]
        head = {
            "threads": "".join(_all_threads(self._main)), "stacks": [*stacks], "looks": looks,
            "when": when, "dumps": [*map(len, dumps)], "seconds": time.thread_time() - began,
        }  # fmt: skip
        return b"".join([json.dumps(head).encode(), b"\n", *dumps])


def _frames(frame: FrameType | None) -> Iterator[tuple[str, str, int]]:
    """Function, file and line; the innermost call first."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        yield frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno or 0
        frame = frame.f_back


def _all_threads(main: int) -> Iterator[str]:
    for ident, frame in sorted(sys._current_frames().items(), key=lambda one: one[0] != main):
        if ident != _thread.get_ident():
            yield f"Thread {ident} (active){NAME if ident == main else ''}\n"
            yield from (f"    {name} ({file}:{line})\n" for name, file, line in _frames(frame))


def _dumps() -> Iterator[bytes]:
    """What the recorders have. They read their settings when they are asked first, so they are not
    before the script has made its process group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        library = sys.modules["torch"]._C._distributed_c10d
        for name in DUMPS:
            if hasattr(library, name):
                yield getattr(library, name)(True, False, False)
