"""The launcher's entry: what comes first in its process, and how its errors are told."""

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # its module signal is slow to import, and a user's may be found first

gc.disable()  # nothing is garbage yet, and looking for it is a tenth of what a launch costs
BLOCKED: frozenset[int] = frozenset()
try:
    # What is for the workers waits until there is somebody to pass it on: it would end us.
    BLOCKED = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGUSR2)))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C without a traceback of ours
except OSError:
    pass  # refused, as it will be where it is needed

# The working directory, which `python -m` puts first: modules in it are the user's, whose names may
# be those of Python's. What is above is built in, but for os, which Python has imported before.
try:
    if not getattr(sys.flags, "safe_path", False) and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
except OSError:
    pass  # the directory has been deleted, and Python has not put it there

# Nor are modules of the user's that PYTHONPATH finds before Python's: as finder.own_first does it,
# which cannot be imported before.
_library = os.path.dirname(os.__file__)
sys.path.sort(key=lambda path: path not in (_library, f"{_library}/lib-dynload"))

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
if os.getpid() == 1:  # of a container: for that process the kernel has no default actions
    for _each in STOP:
        if signal.getsignal(_each) == signal.SIG_DFL:
            signal.signal(_each, lambda signum, _: os._exit(128 + signum))

from spawnlaunch import finder

sys.meta_path.insert(0, finder.Finder)  # before Python's own

STREAMS = ("stdin", "stdout", "stderr")
TELL_S = 5.0  # at most, to tell other launchers that this one was told to end


def main(*before: str) -> int:
    """Run the command line of this process, with words before it; the result is its exit status.

    After a launch it does not return, but ends the process. Nothing is in Python's buffers then.
    """
    argv = (*before, *sys.argv[1:])
    kept = (signal.SIG_IGN, None)
    before_us = {n: how for n in STOP if (how := signal.getsignal(n)) not in kept}
    closed: tuple[str, ...] = ()  # standard streams, which are /dev/null from here on
    try:
        try:
            for each in before_us:
                signal.signal(each, _stop)
            try:  # not above: these are so many that a signal may come meanwhile
                from spawnlaunch import walk
            except Exception as error:
                if finder.tell_change(error):
                    return os.EX_OSERR
                raise
            if None in (sys.stdin, sys.stdout, sys.stderr):
                closed = _hold_closed()
            status = walk.walk(argv, dict(os.environ), closed, BLOCKED)
            os._exit(status)  # Python would spend milliseconds on freeing what ends with us anyway
        finally:
            for each, how in before_us.items():
                signal.signal(each, how)
    except KeyboardInterrupt as stopped:
        from spawnlaunch.run import unable

        (signum,) = stopped.args
        # Who they are may be asked of a name server that says nothing.
        signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + signum))
        signal.setitimer(signal.ITIMER_REAL, TELL_S)
        unable.tell(argv, os.environ, 128 + signum, "", signum)
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
        return 128 + int(signum)  # of PID 1
    except Exception as error:
        return _instead(error, argv, closed)


def _instead(why: Exception, argv: tuple[str, ...], closed: tuple[str, ...]) -> int:
    """Do or say what is to be done or said in place of a launch; the result is the exit status."""
    from spawnlaunch import errors, flags

    if isinstance(why, errors.UsageError):
        from spawnlaunch.run import shared_errors

        shared_errors.refuse(why, os.environ, "spawnlaunch", *argv)
        return errors.WRONG_USE
    if isinstance(why, flags.Instead):
        signal.pthread_sigmask(signal.SIG_SETMASK, BLOCKED)
        os.execv(sys.executable, (sys.executable, "-m", *why.args))
    if isinstance(why, flags.Page):
        from spawnlaunch import printing

        return printing.print_page(str(why), "spawnlaunch", is_closed="stdout" in closed)
    if finder.tell_change():
        return os.EX_OSERR
    from spawnlaunch.run import refused, unable

    return refused.end(why, tell=lambda *how: unable.tell(argv, os.environ, *how))


def _stop(signum: int, _: object) -> None:
    """A signal that means to end the job came while there is nobody yet to pass it on to."""
    raise KeyboardInterrupt(signum)


def _hold_closed() -> tuple[str, ...]:
    """Put /dev/null where a standard stream was closed at our start, as by `>&-`; their names.

    The next descriptor that anybody opens would take their number, and what is written to "stdout"
    would end in a pipe of ours. Python has None in place of such a stream.
    """
    from spawnlaunch import errors

    closed = tuple(name for name in STREAMS if getattr(sys, name) is None)
    for name in closed:
        fd, mode = STREAMS.index(name), "r" if name == "stdin" else "w"
        try:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free (open(2))
        except OSError as error:
            if fd:
                why = f"{name} is closed, and there is no {os.devnull} to have instead"
                raise errors.UsageError(f"{why}: {error.strerror}; type {fd}>FILE") from None
            null, other = os.pipe()  # which has come to its end
            os.close(other)
        if null != fd:
            os.dup2(null, fd)
            os.close(null)
        os.set_inheritable(fd, True)
        setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115  it stays open to the end
    return closed


if __name__ == "__main__":
    sys.exit(main())
