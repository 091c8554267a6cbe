"""Inside a worker: a thread that answers where the worker is, and what torch has recorded.

A line of spawnlaunch-witness.pth, which Python reads at each start, calls `begin` if the variable
WITNESS has the pid of this very process. So the process is a worker, and neither a child of one nor
any other program. Nothing begins before torch is imported; then a thread waits at the abstract
socket `address` for questions (answering.py), which no other user can ask. So the script needs no
wrapper, and its environment no package beyond this one.

In task mode there is no launcher that reports a failure: there the worker names itself before its
traceback.
"""

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object  # typing would take each worker longer than all that is imported here

WITNESS = "SPAWNLAUNCH_WITNESS"  # the pid of the worker
STACK_SIGNAL = "SPAWNLAUNCH_STACK_SIGNAL"  # a number: asks for the stacks of all threads
STACK_FILES = "SPAWNLAUNCH_STACK_FILES"  # the directory for a file of each worker's
TASK = "SPAWNLAUNCH_TASK"  # set where no launcher stays above the worker


def address(pid: int, start: int) -> str:
    """The socket of the process with this pid that began `start` ticks after boot."""
    return f"\0spawnlaunch-witness-{pid}-{start}"


def stack_file(directory: str, pid: int) -> str:
    """The file for the stacks of a process: of a worker, or of a process that it forks."""
    return os.path.join(directory, f"stacks-{pid}")


def begin() -> None:
    """Answer for this process from its import of torch on, where it is a worker.

    A script may call it under a launcher that sets no WITNESS: then its process is the worker.
    """
    os.environ.setdefault(WITNESS, str(os.getpid()))
    if not _is_worker():
        return
    if (number := os.environ.get(STACK_SIGNAL, "")).isdecimal():
        _write_stacks_on(int(number))
    if TASK in os.environ and getattr(sys.excepthook, "__module__", "") != __name__:
        _name_failures()
    if "torch" in sys.modules:
        _answer()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _is_worker() -> bool:
    return os.environ.get(WITNESS) == str(os.getpid())


def _write_stacks_on(signum: int) -> None:
    """Make faulthandler write the stacks of all threads to a file of this process on a signal."""
    import faulthandler

    path = stack_file(os.environ.get(STACK_FILES, ""), os.getpid())
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError:  # the launch is over
        return
    faulthandler.register(signum, file=fd, all_threads=True)


def _name_failures() -> None:
    """Print a line before the traceback of an uncaught exception: which rank, where and when.

    Where a hook of the script, as rich's, shows the traceback in its own way, the line comes at the
    end.
    """
    import atexit

    show, has_named = sys.excepthook, False

    def name(kind: type[BaseException]) -> None:
        if sys.stderr and _is_worker():  # and no fork of it
            sys.stderr.write(_failure_line(kind))

    def name_and_show(*error: Any) -> None:
        nonlocal has_named
        has_named = True
        name(error[0])
        show(*error)

    def name_at_end() -> None:
        error = getattr(sys, "last_value", None)  # that no code has caught
        if error is not None and not has_named:
            name(type(error))

    sys.excepthook = name_and_show
    atexit.register(name_at_end)


def _failure_line(kind: type[BaseException]) -> str:
    """The line on the rank that fails, and, for a missing module, on the right environment."""
    now = time.time()
    when = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))}.{int(now % 1 * 1000):03d}"
    rank, host = os.environ.get("RANK", "?"), os.uname().nodename
    line = f"spawnlaunch: rank {rank} on {host} (pid {os.getpid()}) failed at {when}\n"
    if issubclass(kind, ImportError):
        from spawnlaunch.cli import active

        other = active.other(sys.executable, os.environ, kind.__name__)
        line += f"spawnlaunch: {other}\n" if other else ""
    return line


class _Finder:
    """An import finder that finds no module, but notices the import of torch."""

    _has_begun = False

    def find_spec(self, name: str, *_: object) -> None:
        if name != "torch" or self._has_begun or not _is_worker():  # but a fork of it
            return
        caller = sys._getframe(1).f_back
        if caller and caller.f_code.co_name != "find_spec":  # of importlib.util: no import
            self._has_begun = True
            _answer()


def _answer() -> None:
    try:  # contextlib would take each worker more time than all that is imported here
        from spawnlaunch.witness import answering

        with open("/proc/self/stat", "rb") as file:  # the start is field 22 of proc(5)
            start = int(file.read().rpartition(b") ")[2].split()[19])
        answering.Witness(address(os.getpid(), start))
    except Exception:  # the package is gone, or there is no /proc: the worker does not mind
        pass
