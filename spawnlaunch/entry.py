"""The command line of a process that is a launcher (`__main__.take_process`), and its errors."""

import os
import sys
from contextlib import suppress
from functools import partial

from spawnlaunch.base import errors, say
from spawnlaunch.base.signals import STOP, signal

STREAMS = ("stdin", "stdout", "stderr")
REPORT_S = 5.0  # at most, to tell other launchers that this one was told to end


def main(blocked: frozenset[int], *before: str) -> int:
    """Run the command line of this process, with words before it; the result is its exit status.

    `blocked` is the signals that the workers are started with blocked.

    After a launch it does not return, but ends the process. Nothing is in Python's buffers then.
    """
    argv = (*before, *sys.argv[1:])
    untouched = (signal.SIG_IGN, None)
    before_us = {n: handler for n in STOP if (handler := signal.getsignal(n)) not in untouched}
    closed: tuple[str, ...] = ()  # standard streams, which are /dev/null from here on
    try:
        try:
            for each in before_us:
                signal.signal(each, _stop)
            try:  # not above: these are so many that a signal may come meanwhile
                from spawnlaunch import walk
            except OSError as error:
                return _cannot_load(error, argv)
            if None in (sys.stdin, sys.stdout, sys.stderr):
                closed = _hold_closed()
            status = walk.walk(argv, dict(os.environ), closed, blocked)
            os._exit(status)  # Python would spend milliseconds on freeing memory that ends with us
        finally:
            for each, handler in before_us.items():
                signal.signal(each, handler)
    except KeyboardInterrupt as stopped:
        from spawnlaunch.multinode import announcements

        (signum,) = stopped.args
        # The addresses of the others may be asked of a name server that does not answer.
        signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + signum))
        signal.setitimer(signal.ITIMER_REAL, REPORT_S)
        announcements.announce(argv, os.environ, 128 + signum, "", signum)
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
        return 128 + int(signum)  # of PID 1
    except ImportError as error:
        return _cannot_load(error, argv)
    except Exception as error:
        return _instead(error, argv, closed, blocked)


def _cannot_load(error: Exception, argv: tuple[str, ...]) -> int:
    """Print that a module cannot be loaded, and tell other launchers; return the exit status."""
    words = f"cannot load a module of its own: {error}"
    more = "the package may have been replaced or removed meanwhile; run the command again"
    os.write(2, f"spawnlaunch: {words}; {more}\n".encode(errors="backslashreplace"))
    with suppress(Exception):  # the modules for that may be missing as well
        from spawnlaunch.multinode import announcements

        announcements.announce(argv, os.environ, os.EX_OSERR, words)
    return os.EX_OSERR


def _instead(
    why: Exception, argv: tuple[str, ...], closed: tuple[str, ...], blocked: frozenset[int]
) -> int:
    """Print a page or an error, or run another program, in place of a launch; return the status."""
    from spawnlaunch.cli import flags  # as `walk`: not before signals are heard
    from spawnlaunch.multinode import announcements

    tell = partial(announcements.announce, argv, os.environ)
    if isinstance(why, errors.UsageError):
        from spawnlaunch.run import shared_errors

        shared_errors.refuse(why, os.environ, tell=tell)
        return errors.WRONG_USE
    if isinstance(why, flags.NoWords):
        say.write(str(why))
        return errors.WRONG_USE
    if isinstance(why, flags.Instead):
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.execv(sys.executable, (sys.executable, "-m", *why.args))
    if isinstance(why, flags.Page):
        from spawnlaunch.base import commands

        return commands.print_page(str(why), "spawnlaunch", is_closed="stdout" in closed)
    return say.fatal(why, report=tell)


def _stop(signum: int, _: object) -> None:
    """Handle a signal that means to end the job, before there is a guard to pass it on to."""
    raise KeyboardInterrupt(signum)


def _hold_closed() -> tuple[str, ...]:
    """Put /dev/null where a standard stream was closed at our start, as by `>&-`.

    The result is the names of these streams. The next descriptor that is opened would take their
    number, and text for "stdout" would end in a pipe of ours. Python has None in place of such a
    stream.
    """
    closed = tuple(name for name in STREAMS if getattr(sys, name) is None)
    for name in closed:
        fd, mode = STREAMS.index(name), "r" if name == "stdin" else "w"
        try:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free (open(2))
        except OSError as error:
            if fd:
                why = f"{name} is closed, and there is no {os.devnull} to have instead"
                raise errors.UsageError(f"{why}: {error.strerror}; use {fd}>FILE") from None
            null, other = os.pipe()  # which has come to its end
            os.close(other)
        if null != fd:
            os.dup2(null, fd)
            os.close(null)
        os.set_inheritable(fd, True)
        setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115  it stays open to the end
    return closed
