"""The command: `python -m spawnlaunch`, and the function of the script `spawnlaunch`.

A launch takes its process: it blocks signals, becomes the worker in task mode, and ends without the
exit handlers of Python. So it runs in the process in which it was called only where Python was
started for it. Under a profiler, a debugger, coverage or a notebook, or in a program that calls
`main`, it has a process of its own, and this one goes on afterwards (apart.py).
"""

import _thread
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from types import FrameType
else:
    import _signal as signal  # its module signal is slow to import, and a user's may be found first

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # each means to end the job
SCRIPT = "spawnlaunch"  # the name of the file that pip makes of this function
TOOLS = range(6)  # that sys.monitoring has room for


def main(*before: str) -> int:
    """Run the command line of this process, with words before it; the result is its exit status.

    A launch in this process does not return, but ends it. One in a process of its own changes
    nothing here, and this function raises SystemExit with its status.
    """
    if is_alone(sys._getframe(1)):
        return launch(*before)
    from spawnlaunch.base import own_path

    path = sys.path[:]
    own_path.library_first()
    try:
        from spawnlaunch import apart
    finally:
        sys.path[:] = path
    raise SystemExit(apart.run(*before, *sys.argv[1:]))


def launch(*before: str) -> int:
    """Run the command line in this process, which is a launcher from now on."""
    blocked = take_process()
    from spawnlaunch import entry

    return entry.main(blocked, *before)


def take_process() -> "frozenset[int]":
    """Make this process a launcher: what must come before its first import, and why.

    Returns the signals that its parent has blocked; its workers begin with them blocked. Modules
    that are imported until then are built in, or were imported by Python itself.
    """
    blocked: frozenset[int] = frozenset()
    # Imports leave no garbage, and looking for it is a tenth of the cost of a launch.
    gc.disable()
    try:
        # Signals for the workers would end this process. They wait for a guard to pass them on.
        for_workers = (signal.SIGUSR1, signal.SIGUSR2)
        blocked = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, for_workers))
        # Ctrl-C ends the imports without a traceback.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except OSError:
        pass  # refused, as it will be where it is needed
    # A json.py of the user, in the working directory or PYTHONPATH, would be imported as Python's.
    from spawnlaunch.base import own_path

    own_path.take()
    # The kernel has no default actions for the PID 1 of a container: a signal would be ignored.
    if os.getpid() == 1:
        for each in STOP:
            if signal.getsignal(each) == signal.SIG_DFL:
                signal.signal(each, lambda signum, _: os._exit(128 + signum))
    # Python's own finder asks the file system seven times for a module; every rank imports fifty.
    from spawnlaunch.base import finder

    sys.meta_path.insert(0, finder.Finder)
    return blocked


def begin() -> None:
    """Run a launch in this process, which `apart.run` has started for it."""
    caller = int(sys.argv[1])
    sys.argv[:3] = sys.argv[2:3]
    sys.orig_argv = [sys.executable, "-m", "spawnlaunch", *sys.argv[1:]]
    blocked = take_process()
    from spawnlaunch import entry
    from spawnlaunch.base import machine

    machine.die_with_parent(caller, signal.SIGTERM)
    sys.exit(entry.main(blocked))


def is_alone(caller: "FrameType") -> bool:
    """Whether Python was started for the command of this frame, and runs nothing beside it.

    Then the frame is the outermost one, that of the script, or the two below it are of runpy, for
    `-m`.
    """
    if _thread._count() or sys.gettrace() or sys.getprofile():
        return False
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    if monitoring and any(map(monitoring.get_tool, TOOLS)):
        return False
    if caller.f_globals is not vars(sys.modules["__main__"]):
        return False
    below = caller.f_back
    if below is None:
        return os.path.basename(caller.f_code.co_filename) == SCRIPT
    first = below.f_back
    return first is not None and not first.f_back and first.f_code.co_name == "_run_module_as_main"


if __name__ == "__main__":
    sys.exit(main())
