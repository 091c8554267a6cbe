"""A launch in a process of its own, for a program that goes on in its own process.

The program waits for it, passes signals on, and is afterwards as it was. The launch has the same
command line, environment, open files and mask of signals. It ends, as by SIGTERM, when the program
is gone.

A debugger that follows child processes (debugpy, PyCharm's) puts itself into each Python process,
and a fork and an exec of one process ask twice for its client. So the launch, its guard and its
workers start without it.
"""

from __future__ import annotations

import codecs
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from spawnlaunch.base import events, machine, signals
from spawnlaunch.cli import flags, parsing

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import TextIO

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The package is the one that has this file, wherever the program has found it.
CODE = f"import sys; sys.path.insert(0, {ROOT!r}); from spawnlaunch.__main__ import begin; begin()"
AT_ONCE = 1 << 16  # bytes; as much as a pipe holds
LOOK_MS = 50  # between two looks for the end of a launch, where the kernel has no pidfds

PASSED_ON = signals.STOP | signals.JOB_CONTROL | signals.FORWARD

FOLLOWS = "_pydev_bundle.pydev_monkey"  # the module by which pydevd follows child processes
NOT_DEBUGGED = {"--help", "--version", "--completion", "--explain", "--no-python"}
DEBUG = (
    *("--standalone", "--nproc", "1"),  # a rank of a job of its own, in a step too
    *("-m", "debugpy", "--listen", "127.0.0.1:5679", "--wait-for-client"),
)


def run(*words: str) -> int:
    """Run a command line of the launcher; the result is its exit status."""
    # Where a debugger follows this process, print how to debug one of the ranks.
    typed, program = parsing.read_flags(words, lenient=True)
    names = {flag.name for flag, _, _ in typed}
    if program and names.isdisjoint(NOT_DEBUGGED) and program[0] not in flags.PROGRAMS:
        module = ("-m",) if "-m" in names else ()
        line = shlex.join([*flags.HERE.split(), *DEBUG, *module, *program])
        print_unfollowed(f"run {line} and attach to its port")
    # The function is that of multiprocessing, which has no other one either.
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = (sys.executable, *options, "-c", CODE, str(os.getpid()), sys.argv[0], *words)
    status, _ = run_child(command, PASSED_ON, close_fds=False)
    return status if status >= 0 else 128 - status


def run_child(
    command: Sequence[str], passed_on: Iterable[int], is_apart: bool = False, **options: Any
) -> tuple[int, list[int]]:
    """Run a launcher to its end; return its status, as Popen has it, and the signals passed on.

    Its output goes where sys.stdout and sys.stderr lead. Signals from the terminal reach it by
    themselves, as it is in the same process group, unless it `is_apart`. `options` are Popen's.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    with _caught(passed_on) as pipe:
        with unfollowed():
            child = subprocess.Popen(
                command,
                stdout=_target(sys.stdout, sys.__stdout__, 1),
                stderr=_target(sys.stderr, sys.__stderr__, 2),
                **options,
            )
        with child:
            try:
                sent = _attend(child, pipe, is_apart)
            except BaseException:
                child.terminate()
                raise
    return child.returncode, sent


def unfollowed() -> AbstractContextManager[None]:
    """Keep debuggers that follow child processes out of new processes, within the context."""
    skip = getattr(sys.modules.get(FOLLOWS), "skip_subprocess_arg_patch", nullcontext)
    within: AbstractContextManager[None] = skip()
    return within


def print_unfollowed(remedy: str) -> None:
    """Print that the ranks are not followed, where a debugger would have followed them."""
    if FOLLOWS in sys.modules and not isinstance(os.fork, BuiltinFunctionType):
        line = "the debugger of this process does not follow the ranks; to debug one,"
        print(f"spawnlaunch: {line} {remedy}", file=sys.stderr, flush=True)


def _target(stream: TextIO | None, first: TextIO | None, fd: int) -> int | None:
    """The argument of Popen for sys.stdout or sys.stderr.

    None means the file that the stream was at the start.
    """
    if stream is None:
        return subprocess.DEVNULL
    try:
        return None if stream is first and stream.fileno() == fd else subprocess.PIPE
    except (OSError, ValueError):  # it is no file
        return subprocess.PIPE


@contextmanager
def _caught(passed_on: Iterable[int]) -> Iterator[events.SignalPipe | None]:
    """Catch the signals that are to be passed on, within the context; the result is their pipe.

    Only the main thread has signals. Those that are ignored stay so, and those that are handled in
    C, as by faulthandler. A signal that comes as the launch has ended goes to the earlier handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    ignores_children = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    if ignores_children:  # then no end of a child could be waited for
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    untouched = (signal.SIG_IGN, None)
    heeded = {each for each in passed_on if signal.getsignal(each) not in untouched}
    pipe = events.SignalPipe(heeded - set(blocked))
    try:
        yield pipe
    finally:
        late = pipe.read()
        pipe.close()
        if ignores_children:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for signum in late:
            signal.raise_signal(signum)


def _attend(
    child: subprocess.Popen[bytes], pipe: events.SignalPipe | None, is_apart: bool
) -> list[int]:
    """Copy the output of a launcher and pass signals on, until both have ended; return these."""
    copied = {
        source.fileno(): (stream, codecs.getincrementaldecoder("utf-8")("replace"))
        for source, stream in ((child.stdout, sys.stdout), (child.stderr, sys.stderr))
        if source
    }
    sent: list[int] = []
    ear: events.Ear | None = None
    if pipe:
        signal.pthread_sigmask(signal.SIG_BLOCK, pipe.caught)
        ear = events.Ear(pipe)
    ended = machine.open_pidfd(child.pid)
    poller = select.poll()
    for fd in (*copied, *(ear.fds if ear else ()), *(() if ended is None else (ended,))):
        poller.register(fd, select.POLLIN)
    while child.poll() is None or copied:
        for fd, _ in poller.poll(LOOK_MS if ended is None else None):
            if fd in copied:
                if not _copy_part(fd, *copied[fd]):
                    poller.unregister(fd)
                    del copied[fd]
            elif fd == ended or child.poll() is not None:
                child.wait()
                poller.unregister(fd)  # a signal that comes from now on is for this program
            elif ear and pipe:
                sent += _pass_on(child, ear, pipe, is_apart)
    if ear:  # the signals that came as the launch had ended are this program's
        for signum, is_typed in ear.read():
            if is_apart or not is_typed:  # what was typed just before was the launch's
                signal.raise_signal(signum)  # blocked here until the earlier handlers are back
        ear.close()
    if ended is not None:
        os.close(ended)
    return sent


def _copy_part(fd: int, stream: TextIO, decoder: codecs.IncrementalDecoder) -> bool:
    """Copy the bytes that a pipe has by now; False: it has ended."""
    data = os.read(fd, AT_ONCE)
    stream.write(decoder.decode(data, final=not data))
    stream.flush()
    return bool(data)


def _pass_on(
    child: subprocess.Popen[bytes], ear: events.Ear, pipe: events.SignalPipe, is_apart: bool
) -> list[int]:
    """Pass the signals on that have come, and return them."""
    sent = []
    for signum, is_typed in ear.read():
        if is_apart or not is_typed:
            sent.append(signum)
            child.send_signal(signum)
        if signum == signal.SIGTSTP:
            # Do what the signal would have done without us: as a rule it stops this process.
            handler = signal.signal(signal.SIGTSTP, pipe.before[signal.SIGTSTP])
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
            signal.raise_signal(signal.SIGTSTP)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
            signal.signal(signal.SIGTSTP, handler)
    return sent
