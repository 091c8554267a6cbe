"""Inside a worker: a thread that tells who asks where the worker is, and what torch has recorded.

A line of spawnlaunch-witness.pth, which Python reads at each start, comes here where the variable
WITNESS has the number of this very process. So it is a worker, and nothing that a worker has
started, nor any other program. Nothing begins before torch is imported; then a thread waits at the
abstract socket `address` for questions (answering.py), which no other user can ask. So the script
needs no wrapper, and its environment no package beyond this one.
"""

import os
import sys

WITNESS = "SPAWNLAUNCH_WITNESS"  # the pid of the worker
STACK_SIGNAL = "SPAWNLAUNCH_STACK_SIGNAL"  # a number: asks for the stacks of all threads, on stderr


def address(pid: int, start: int) -> str:
    """Where the process listens that has this number, and began so many ticks after boot."""
    return f"\0spawnlaunch-witness-{pid}-{start}"


def begin() -> None:
    """Answer for this process from the moment at which it imports torch, where it is a worker.

    A script may call it under a launcher that sets no WITNESS: then its process is the worker.
    """
    os.environ.setdefault(WITNESS, str(os.getpid()))
    if not _is_worker():
        return
    if (number := os.environ.get(STACK_SIGNAL, "")).isdecimal():
        import faulthandler

        faulthandler.register(int(number), file=2, all_threads=True)
    if "torch" in sys.modules:
        _answer()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _is_worker() -> bool:
    return os.environ.get(WITNESS) == str(os.getpid())


class _Finder:
    """Finds no module; but torch is looked for here first."""

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
