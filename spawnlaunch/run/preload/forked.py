"""--preload: import modules once, and fork workers from the process that has them.

A forked worker is to find itself as if it had been started: its own argv, environment and path, a
fresh __main__, unbuffered output, thread counts of its own share of the machine, and an end that
runs exit handlers and flushes. It shares with the others the memory that no process has written.

A launch is refused where the import has left something that no fork may follow. A fork takes one
thread along: a lock or a device that another thread held at that moment is lost in the child.
Threads that end before a fork and are started again when they are needed (by handlers of
pthread_atfork(3)) are no danger: another fork, of a child that ends at once, shows which they are.

Python's random, numpy's legacy generator and torch's default generators are seeded at their import,
and multiprocessing draws a key. A worker that is forked draws all of them again, whatever seed a
preloaded module has set. Generators that a module makes for itself at its import, and the hashes of
strings (PYTHONHASHSEED), are the same in all workers of an image.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import pkgutil
import runpy
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType

from spawnlaunch import witness
from spawnlaunch.base import errors, machine, reading
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc
from spawnlaunch.workers import environment, launches, starting
from spawnlaunch.world import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn

DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")
HARMLESS_THREADS = ("jemalloc_bg_thd",)  # started again in a child by itself


def _import(modules: Sequence[str]) -> None:
    """Import the modules.

    The working directory is searched last: a json.py there hides no other module.
    Raises UsageError.
    """
    try:
        here = machine.getcwd()
    except OSError:  # it has been deleted
        here = os.devnull
    sys.path.append(here)
    for name in modules:
        try:
            import_module(name)
        except ImportError as error:
            if _user_part(error):
                print_exception(error)
            raise errors.UsageError(
                f"--preload {name}: cannot be imported: {error}; install it, or leave it out"
            ) from None
    sys.path[:] = [entry for entry in sys.path if entry is not here]


def worker_maker(launch: launches.Launch) -> starting.BecomeWorker:
    """Import the modules; the result turns a fork of this process into a worker.

    A library that takes its number of threads once, at its import, gets that of the first worker.
    Raises UsageError where they cannot be imported, or this process must not be forked then.
    """
    modules = launch.request.preload
    if not reading.are_threads(os.environ.get(environment.OMP, "")):
        os.environ[environment.OMP] = str(launch.plan.bindings[0].threads)
    before = frozenset(fd for fd in proc.open_fds() if not machine.get_inheritable(fd))
    _import(modules)
    reason = next(_objections(), None)
    if reason:
        raise errors.UsageError(
            f"--preload {','.join(modules)}: {reason}, so workers cannot be forked from here; "
            "leave the module out, and import it in the script"
        )
    inherited = frozenset(proc.open_fds()) - before  # the user's and the modules' files
    gc.freeze()  # what is in memory here stays where it is, on pages that all workers share

    def turn_into(worker: launches.Worker, signal_mask: Iterable[int]) -> NoReturn:
        worker = starting.set_up_process(worker)
        machine.rename_process(os.path.basename(worker.command[0]), " ".join(worker.command))
        _forget_the_launcher(inherited)
        _take_on(worker)
        _draw_anew()
        machine.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
        status = _call(worker.command[2:])  # without python -u
        if status == -signal.SIGINT:  # end as Python does after a Ctrl-C that no handler has caught
            machine.signal(signal.SIGINT, signal.SIG_DFL)
            machine.kill(machine.getpid(), signal.SIGINT)
        machine.exit_now(status & 0xFF)

    return turn_into


def _objections() -> Iterator[str]:
    """The reasons why this process must not be forked, if there are any."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        yield "CUDA is initialised"
    for fd in proc.open_fds():
        target = ""
        with suppress(OSError):
            target = machine.readlink(f"/proc/self/fd/{fd}")
        if target.startswith(DEVICES):
            yield f"{target} is open, the driver of a device"
    main = threading.main_thread()
    python = [thread.name for thread in threading.enumerate() if thread is not main]
    if python:
        yield f"there is a thread {python[0]!r}"
    if len(_native_threads()) > len(python):
        machine.waitpid(machine.fork(lambda: machine.exit_now(0)), 0)
        if (count := len(_native_threads())) > len(python):
            yield f"there are {count} threads that outlive a fork, and are not Python's"


def _native_threads() -> list[str]:
    """The names of all threads but the main thread and harmless ones."""
    try:
        main = machine.readlink("/proc/self")  # which is not our pid in another namespace's /proc
        threads = [name for name in machine.listdir("/proc/self/task") if name != main]
    except OSError:
        return []
    names = (proc.read(f"self/task/{thread}", "comm") for thread in threads)
    listed = [name.strip() for name in names if name]  # None: it has just ended
    return [name for name in listed if name not in HARMLESS_THREADS]


def _draw_anew() -> None:
    """Draw in a forked worker the seeds that a fresh process would have drawn.

    os.fork has seeded random.
    """
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.seed()  # of all devices: those that are not initialised, when they will be
    if process := sys.modules.get("multiprocessing.process"):
        process.current_process().authkey = machine.urandom(32)
    if uuid := sys.modules.get("uuid"):
        uuid.__dict__.update(_node=None, _last_timestamp=None)  # drawn where there is no MAC


def _take_on(worker: launches.Worker) -> None:
    """Set environment, streams and thread counts as a new process would have them."""
    gc.enable()
    inherited = dict(os.environ)
    os.environ.clear()
    os.environ.update(worker.environ)
    environ = worker.environ
    shown = {name: environ[name] for name in (environment.MARK, *identity.RANKS) if name in environ}
    machine.show_environment({**shown, **environment.changes(environ, inherited), **environ})
    named = [
        os.path.abspath(path) for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path
    ]
    sys.path.sort(key=lambda path: path not in named)  # before Python's own: not so in the launcher
    sys.orig_argv[:] = worker.command
    sys.stdout, sys.stderr = _unbuffered(1, sys.stdout), _unbuffered(2, sys.stderr)
    sys.__dict__.update(__stdout__=sys.stdout, __stderr__=sys.stderr)
    witness.begin()
    count = worker.environ.get(environment.OMP, "").partition(",")[0]
    torch = sys.modules.get("torch")
    if torch and reading.is_number(count, digits=9) and int(count) > 0:
        torch.set_num_threads(int(count))


def _forget_the_launcher(inherited: frozenset[int]) -> None:
    """Close the launcher's own files, and give Ctrl-C back to Python."""
    for fd in proc.open_fds():
        if fd > 2 and fd not in inherited:
            machine.close(fd)
    machine.set_wakeup_fd(-1)
    if machine.getsignal(signal.SIGINT) == signal.SIG_DFL:
        machine.signal(signal.SIGINT, signal.default_int_handler)


def _unbuffered(fd: int, like: Any) -> io.TextIOWrapper:
    """Return a stream as `python -u` opens it."""
    return io.TextIOWrapper(
        io.FileIO(fd, "w", closefd=False),  # a raw stream, as -u has it
        encoding=like.encoding, errors=like.errors, write_through=True,
        line_buffering=machine.isatty(fd),
    )  # fmt: skip


def _call(words: Sequence[str]) -> int:
    """Run `[-m] TARGET ARGS` as __main__, and then the exit handlers.

    The result is the exit status; -SIGINT: a Ctrl-C has ended it.
    """
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    try:
        _execute(words, main)
        status = 0
    except SystemExit as leaving:
        status = status_of(leaving)
    except BaseException as error:
        print_exception(error)
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    for last in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        try:
            last()
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 120  # Python's own where it cannot flush
    return status


def _execute(words: Sequence[str], main: ModuleType) -> None:
    target = words[0]
    if target == "-m":
        sys.argv = ["-m", *words[2:]]
        _look_first_in(machine.getcwd())
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  # as python -m
        return
    sys.argv = [*words]
    importer = None if target.endswith(".py") else pkgutil.get_importer(target)
    if importer and importer.find_spec("__main__"):  # of a directory or an archive
        sys.path.insert(0, os.path.abspath(target))
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    path = os.path.abspath(target)  # as __main__.__file__ is since Python 3.9
    _look_first_in(os.path.dirname(os.path.realpath(path)))
    main.__dict__.update(__file__=path, __cached__=None, __loader__=None)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _look_first_in(directory: str) -> None:
    """Import from this directory first, as Python does unless `python -P` forbids it."""
    if sys.version_info < (3, 11) or not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, directory)


def status_of(leaving: SystemExit) -> int:
    """Return the exit status, as Python's own handling of SystemExit has it."""
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    print(leaving.code, file=sys.stderr)
    return 1


def print_exception(error: BaseException) -> None:
    """Print the traceback without our frames, and those of the import system above the worker's."""
    user_part = _user_part(error)
    sys.excepthook(type(error), error.with_traceback(user_part), user_part)


def _user_part(error: BaseException) -> TracebackType | None:
    """The part of the traceback that begins in the user's code."""
    begins = ("<frozen ", os.path.dirname(__file__))
    ends = (os.path.join("importlib", "__init__.py"), os.sep + "runpy.py")
    traceback = error.__traceback__
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if not path.startswith(begins) and not path.endswith(ends):
            break
        traceback = traceback.tb_next
    return traceback
