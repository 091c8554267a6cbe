"""The launcher as a subprocess, with its output where the caller's goes, and its interrupts.

Where sys.stdout is the file that it was at the start, the launcher has it by itself, and writes to
a terminal as it always does. Elsewhere (a notebook, a test that captures output) its output is read
from a pipe and written there, by the calling thread.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spawnlaunch import apart

if TYPE_CHECKING:
    from types import FrameType
    from typing import TextIO


def run(command: Sequence[str]) -> int:
    """Run a launcher to its end; the result is its exit status, or -n where signal n killed it.

    On SIGINT it is told to end its workers, and when it has ended, KeyboardInterrupt is raised.
    """
    streams = (sys.stdout, sys.stderr)
    for stream in filter(None, streams):
        stream.flush()
    with _interrupts() as running:
        with apart.unfollowed():
            launcher = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=apart.target(sys.stdout, sys.__stdout__, 1),
                stderr=apart.target(sys.stderr, sys.__stderr__, 2),
            )
        running.append(launcher)
        try:
            with launcher:
                _copy(launcher, streams)
                return launcher.wait()
        finally:
            if launcher.poll() is None:  # any error here ends it
                launcher.terminate()
                launcher.wait()


def _copy(launcher: subprocess.Popen[bytes], streams: Sequence[TextIO | None]) -> None:
    """Copy the contents of pipes to the streams, until the pipes end."""
    with selectors.DefaultSelector() as selector:
        for pipe, stream in zip((launcher.stdout, launcher.stderr), streams, strict=True):
            if pipe:
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                selector.register(pipe, selectors.EVENT_READ, (decoder, stream))
        while selector.get_map():
            for key in [key for key, _ in selector.select() if not _copy_part(key)]:
                selector.unregister(key.fileobj)


def _copy_part(key: selectors.SelectorKey) -> bool:
    """Copy the bytes that a pipe has by now; False: it has ended."""
    data = os.read(key.fd, apart.AT_ONCE)
    decoder, stream = key.data
    stream.write(decoder.decode(data, final=not data))
    stream.flush()
    return bool(data)


@contextmanager
def _interrupts() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Pass SIGINT on to the launchers that are put into the list; act on it when they have ended.

    Only the main thread has signals; where they are ignored, they stay so.
    """
    running: list[subprocess.Popen[bytes]] = []
    heeded = signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None)
    if threading.current_thread() is not threading.main_thread() or not heeded:
        yield running
        return
    seen = []

    def pass_on(signum: int, _: FrameType | None) -> None:
        seen.append(signum)
        for launcher in running:
            launcher.send_signal(signum)

    before = signal.signal(signal.SIGINT, pass_on)
    try:
        yield running
    finally:
        signal.signal(signal.SIGINT, before)
        if seen:
            signal.raise_signal(signal.SIGINT)
