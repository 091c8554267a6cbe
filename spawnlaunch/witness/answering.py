"""The thread of a worker that answers questions about its stacks and torch's records.

A question and its answer, each through a socket of its own:

    {"seconds": 2.0, "every": 0.04}<newline>
    {"threads": "Thread 12 ...", "stacks": [[["step", "train.py", 8], ...], ...],
     "looks": [[1795527719404788887, 0], ...], "when": 1795527719444788887, "seconds": 0.021,
     "groups": {"0": [0, 1]}, "dumps": [228717]}<newline><so many bytes>...

`looks` are those at the main thread within that time: nanoseconds since 1970, and the index of its
stack in `stacks` (the innermost call first). `threads` are the stacks of all threads at the end, as
py-spy writes them. `groups` are this rank's process groups, with the ranks of each: gloo's recorder
leaves them out. A dump is one of torch's flight recorder (hang/flight.py), without stacks: those
would import a large part of torch. `when` they were taken is nanoseconds since 1970. `seconds` of
an answer is the CPU time that it has taken.
"""

from __future__ import annotations

import _thread
import atexit
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

NAME = ': "MainThread"'  # after the number of that thread
MOST_FRAMES = 100  # of a stack
MOST_S, LEAST_EVERY_S = 30.0, 0.01  # limits of a question
PATIENCE_S = 1.0  # with the client, and at a fork with an unfinished answer
# A torch with NCCL has a recorder for that beside the other.
DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")


class Witness:
    """The witness thread of a process.

    It ends before a fork, and another starts after it: Python 3.12 warns when a process of several
    threads forks. It also ends before Python does.
    Raises OSError where there is no place to listen at.
    """

    def __init__(self, address: str) -> None:
        self._main = threading.main_thread().ident or 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(address)
        self._listener.listen(8)
        self._stop, self._stop_end = socket.socketpair()
        self._stop_end.setblocking(False)
        # A handler of a signal may fork within a fork.
        self._forking, self._running = _thread.RLock(), _thread.allocate_lock()
        self._number = 0  # of the thread
        self._is_here = self._is_wanted = True  # not in a child; and not while it forks
        self._start()
        atexit.register(self._at_exit)
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._leave
        )

    def _start(self) -> None:
        """Start the thread where it is wanted and not there.

        A thread that still has to end calls this when it does.
        """
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            # A signal that the script has blocked, to wait for it, must not come to the thread.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            if self._is_here and self._is_wanted and self._running.acquire(False):
                try:
                    with suppress(BlockingIOError):
                        self._stop_end.recv(1 << 12)
                    _thread.start_new_thread(self._be_witness, ())
                except (OSError, RuntimeError):  # there can be no more threads
                    self._running.release()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _before_fork(self) -> None:
        if not self._is_here:
            return
        self._forking.acquire()
        try:
            self._end()
        except OSError:  # the script has closed descriptors that it had not opened
            self._is_here = False
            self._forking.release()

    def _at_exit(self) -> None:
        """End the thread before Python does.

        At its end Python ends a thread that wants its lock; within torch that ended the process.
        """
        if self._is_here:
            with suppress(OSError):
                self._end()

    def _end(self) -> None:
        """End the thread, and keep it from starting again."""
        self._is_wanted = False
        until = time.monotonic() + PATIENCE_S
        self._stop.send(b".")
        if self._running.acquire(timeout=PATIENCE_S):
            self._running.release()
            while os.path.exists(f"/proc/self/task/{self._number}") and time.monotonic() < until:
                time.sleep(0.0001)  # it ends a little later than its last line

    def _after_fork(self) -> None:
        if self._is_here:
            try:
                self._is_wanted = True
                self._start()
            finally:
                self._forking.release()

    def _leave(self) -> None:
        if self._is_here:
            self._is_here = False
            for each in (self._listener, self._stop, self._stop_end):
                each.close()

    def _be_witness(self) -> None:  # by this name its stack is known: hang/groups.py
        self._number = _thread.get_native_id()
        try:
            # The thread is to end where another event comes too.
            while self._is_wanted and self._events(self._listener) == {self._listener.fileno()}:
                with suppress(Exception):  # of the client, or of torch: the worker goes on
                    self._serve()
        except OSError:  # closed
            self._is_here = False
        finally:
            self._running.release()
            self._start()

    def _events(self, file: Any, within_s: float | None = None) -> set[int]:
        """Wait for the file, and for the end of the thread; the result is which of them has come.

        Raises OSError where one of them is closed. With more than 1024 files select(2) would not
        do.
        """
        poll = select.poll()
        for each in (file, self._stop_end):
            poll.register(each, select.POLLIN)
        events = dict(poll.poll(None if within_s is None else within_s * 1e3))
        if select.POLLNVAL in events.values():
            raise OSError
        return set(events)

    def _serve(self) -> None:
        try:
            client = self._listener.accept()[0]
        except OSError:  # too many files are open: later, perhaps
            self._events(self._stop_end, PATIENCE_S)
            return
        with client:
            client.settimeout(PATIENCE_S)
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            is_same_user = struct.unpack("3i", credentials)[1] == os.geteuid()
            if is_same_user and client.fileno() in self._events(client, PATIENCE_S):
                question = json.loads(client.recv(1 << 12))
                client.sendall(self._answer(client, question["seconds"], question["every"]))

    def _answer(self, client: socket.socket, seconds: float, every: float) -> bytes:
        began, until = time.thread_time(), time.monotonic() + min(seconds, MOST_S)
        stacks: dict[tuple[Any, ...], int] = {}
        looks = []
        while time.monotonic() < until:
            frames = tuple(_frames(sys._current_frames().get(self._main)))
            looks.append((time.time_ns(), stacks.setdefault(frames, len(stacks))))
            if self._events(client, min(max(every, LEAST_EVERY_S), MOST_S)):
                break  # the client has gone, or wants no more
        when, dumps = time.time_ns(), [*_dumps()]
        head = {
            "threads": "".join(_all_threads(self._main)), "stacks": [*stacks], "looks": looks,
            "when": when, "groups": _groups(), "dumps": [*map(len, dumps)],
            "seconds": time.thread_time() - began,
        }  # fmt: skip
        return b"".join([json.dumps(head).encode(), b"\n", *dumps])


def _frames(frame: FrameType | None) -> Iterator[tuple[str, str, int]]:
    """Function, file and line of each call in a stack; the innermost call first."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        yield frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno or 0
        frame = frame.f_back


def _all_threads(main: int) -> Iterator[str]:
    for ident, frame in sorted(sys._current_frames().items(), key=lambda thread: thread[0] != main):
        if ident != _thread.get_ident():
            yield f"Thread {ident} (active){NAME if ident == main else ''}\n"
            yield from (f"    {name} ({file}:{line})\n" for name, file, line in _frames(frame))


def _groups() -> dict[str, list[int]]:
    """The ranks of each process group, by its name.

    Empty where there are none, or while the main thread makes one.
    """
    with suppress(Exception):
        world = sys.modules["torch.distributed.distributed_c10d"]._world
        return {name: [*world.pg_group_ranks[group]] for group, name in world.pg_names.items()}
    return {}


def _dumps() -> Iterator[bytes]:
    """The dumps of torch's flight recorders.

    A recorder reads its settings when it is first asked, so none is asked before the script has
    made its process group.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        library = sys.modules["torch"]._C._distributed_c10d
        for name in DUMPS:
            if hasattr(library, name):
                yield getattr(library, name)(True, False, False)
