"""A launch in a process of its own, for a program that goes on in its own process.

The program waits for it, passes signals on, and is afterwards as it was. The launch has the same
command line, environment, open files and mask of signals. It ends, as by SIGTERM, when the program
is gone.

A debugger that follows child processes (debugpy, PyCharm's) puts itself into each Python process,
and a fork and an exec of one process ask twice for its client. So the launch, its guard and its
workers start without it.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from types import BuiltinFunctionType
from typing import TYPE_CHECKING

from spawnlaunch.base import events, signals
from spawnlaunch.cli import flags, parsing

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import IO, TextIO

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The package is the one that has this file, wherever the program has found it.
CODE = f"import sys; sys.path.insert(0, {ROOT!r}); from spawnlaunch.__main__ import begin; begin()"
AT_ONCE = 1 << 16  # bytes; as much as a pipe holds

PASSED_ON = signals.STOP | signals.JOB_CONTROL | signals.FORWARD

FOLLOWS = "_pydev_bundle.pydev_monkey"  # the module by which pydevd follows child processes
NOT_DEBUGGED = {"--help", "--version", "--completion", "--explain", "--no-python"}
DEBUG = (
    *("--standalone", "--nproc", "1"),  # a rank of a job of its own, in a step too
    *("-m", "debugpy", "--listen", "127.0.0.1:5679", "--wait-for-client"),
)


def run(*words: str) -> int:
    """Run a command line of the launcher; the result is its exit status."""
    streams = (sys.stdout, sys.stderr)
    for stream in filter(None, streams):
        stream.flush()
    outputs = (target(sys.stdout, sys.__stdout__, 1), target(sys.stderr, sys.__stderr__, 2))
    _tell_how_to_debug(words)
    with _signals_held() as (pipe, blocked), _pipe() as (ended, end):
        with unfollowed():
            launch = subprocess.Popen(
                _command(words, blocked), stdout=outputs[0], stderr=outputs[1], close_fds=False
            )
        pipes = zip((launch.stdout, launch.stderr), streams, strict=True)
        copying = [threading.Thread(target=_copy, args=(*pair,)) for pair in pipes if pair[0]]
        waiting = threading.Thread(target=_wait, args=(launch, end))
        try:
            for thread in (*copying, waiting):
                thread.start()
            if pipe:
                _pass_on(launch, pipe, ended)
        finally:
            if launch.returncode is None and sys.exc_info()[0]:  # any error here ends it
                launch.terminate()
            for thread in (*copying, waiting):
                thread.join()
    return launch.returncode if launch.returncode >= 0 else 128 - launch.returncode


def unfollowed() -> AbstractContextManager[None]:
    """Keep debuggers that follow child processes out of new processes, within the context."""
    skip = getattr(sys.modules.get(FOLLOWS), "skip_subprocess_arg_patch", nullcontext)
    within: AbstractContextManager[None] = skip()
    return within


def tell_unfollowed(remedy: str) -> None:
    """Print that the ranks are not followed, where a debugger would have followed them."""
    if FOLLOWS in sys.modules and not isinstance(os.fork, BuiltinFunctionType):
        said = "the debugger of this process does not follow the ranks; to debug one,"
        print(f"spawnlaunch: {said} {remedy}", file=sys.stderr, flush=True)


def target(stream: TextIO | None, first: TextIO | None, fd: int) -> int | None:
    """The argument of Popen for sys.stdout or sys.stderr.

    None means the file that the stream was at the start.
    """
    if stream is None:
        return subprocess.DEVNULL
    try:
        return None if stream is first and stream.fileno() == fd else subprocess.PIPE
    except (OSError, ValueError):  # it is no file
        return subprocess.PIPE


def _command(words: Iterable[str], blocked: Iterable[int]) -> list[str]:
    told = json.dumps([os.getpid(), sorted(map(int, blocked)), sys.argv[0]])
    # The function is that of multiprocessing, which has no other one either.
    own: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *own, "-c", CODE, told, *words]


@contextmanager
def _signals_held() -> Iterator[tuple[events.SignalPipe | None, Iterable[int]]]:
    """Take the signals that are to be passed on; the result is their pipe, and the old mask.

    Only the main thread has signals. Those that are ignored stay so, and those that are handled in
    C, as by faulthandler. A signal that comes as the launch has ended goes to the earlier handlers.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    if threading.current_thread() is not threading.main_thread():
        yield None, blocked
        return
    ignores_children = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    if ignores_children:  # then no end of a child could be waited for
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kept = (signal.SIG_IGN, None)
    heeded = {each for each in PASSED_ON if signal.getsignal(each) not in kept}
    pipe = events.SignalPipe(heeded - set(blocked))
    signal.pthread_sigmask(signal.SIG_BLOCK, pipe.caught)
    try:
        yield pipe, blocked
    finally:
        late = pipe.read()
        pipe.close()
        if ignores_children:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for signum in late:
            signal.raise_signal(signum)


@contextmanager
def _pipe() -> Iterator[tuple[int, IO[bytes]]]:
    """A pipe: the end for reading, and the one for writing, which the caller may close."""
    reader, writer = os.pipe()
    with open(reader, "rb"), open(writer, "wb") as end:
        yield reader, end


def _wait(launch: subprocess.Popen[bytes], end: IO[bytes]) -> None:
    """Wait for the end of the launch, and tell the main thread."""
    launch.wait()
    end.close()


def _pass_on(launch: subprocess.Popen[bytes], pipe: events.SignalPipe, ended: int) -> None:
    """Pass signals on until the launch has ended.

    Signals from the terminal reach the launch by themselves, as it is in the same process group.
    One that came just before the end has been the launch's, so the program does not get it again.
    """
    ear, poller = events.Ear(pipe), select.poll()
    for fd in (*ear.fds, ended):
        poller.register(fd, select.POLLIN)
    while ended not in dict(poller.poll()):
        for signum, is_typed in ear.read():
            if not is_typed:
                launch.send_signal(signum)
            if signum == signal.SIGTSTP:
                _stop(pipe)
    for signum, is_typed in ear.read():
        if not is_typed:
            signal.raise_signal(signum)  # blocked here until the earlier handlers are back
    ear.close()


def _stop(pipe: events.SignalPipe) -> None:
    """Do what the signal would have done without us: as a rule it stops this process."""
    ours = signal.signal(signal.SIGTSTP, pipe.before[signal.SIGTSTP])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
    signal.raise_signal(signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
    signal.signal(signal.SIGTSTP, ours)


def _copy(pipe: IO[bytes], stream: TextIO) -> None:
    """Copy the bytes of a pipe to a stream, as text, until the pipe's end."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with pipe:
        while data := os.read(pipe.fileno(), AT_ONCE):
            stream.write(decoder.decode(data))
            stream.flush()
    stream.write(decoder.decode(b"", final=True))


def _tell_how_to_debug(words: tuple[str, ...]) -> None:
    """Print how to debug one of the ranks, where a debugger follows this process."""
    given, program = parsing.read_flags(words, lenient=True)
    names = {flag.name for flag, _, _ in given}
    if program and names.isdisjoint(NOT_DEBUGGED) and program[0] not in flags.PROGRAMS:
        module = ("-m",) if "-m" in names else ()
        line = shlex.join([*flags.HERE.split(), *DEBUG, *module, *program])
        tell_unfollowed(f"type {line} and attach to its port")
