"""One worker: its environment, its command, and the steps from fork to exec."""

from __future__ import annotations

import errno
import os
import signal

from spawnlaunch.binding import apply
from spawnlaunch.binding.plan import Binding
from spawnlaunch.records import NamedTuple
from spawnlaunch.request import Program, Request
from spawnlaunch.run import signals
from spawnlaunch.run.environment import (
    COLUMNS,
    ITS_OWN,
    MARK,
    STACK_SIGNAL,
    TASK_PID,
    environment,
)
from spawnlaunch.run.routes import (
    ERROR_FILE,
    Route,
    Routes,
    check_filters,
    directories,
    own_file,
    prefix,
    routes,
)
from spawnlaunch.run.say import say
from spawnlaunch.world import Resolution, World, anew

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import NoReturn

    from spawnlaunch.world.ports import HeldPort

CANNOT_EXECUTE = 126  # the shell's exit statuses for a program that is there but cannot run,
NOT_FOUND = 127  # and for one that is not there (POSIX, XCU 2.8.2)

# The bundled loop is part of this package, and is started by its path: a train.py or train/ of the
# user's is never taken for it.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUNDLED = os.path.join(_PACKAGE, "train", "__main__.py")


class Worker(NamedTuple):
    """A process to be started."""

    rank: int
    local_rank: int
    command: tuple[str, ...]
    environ: Mapping[str, str]  # complete: nothing else is inherited
    seat: Binding
    mem_bind: str  # "preferred", "bind" or "none"
    own_session: bool
    routes: Routes
    prefix: str  # of each of its lines that the launcher shows

    @property
    def name(self) -> str:
        """`rank 3 on node1`, in lines about it."""
        return f"rank {self.rank} on {os.uname().nodename}"


class Launch(NamedTuple):
    """All that the workers of an attempt are made of."""

    request: Request
    resolution: Resolution
    bindings: Sequence[Binding]  # of the workers, in the order of their local ranks
    environ: Mapping[str, str]  # what the launcher inherited
    hostname: str
    scratch: str  # a directory for files that need not outlive the launch
    columns: int | None  # the width of the terminal that our stdout is
    held_port: HeldPort | None  # MASTER_PORT, where this launcher has chosen it


def renewed(launch: Launch) -> Launch:
    """What another attempt is made of: another port, unless the user named one.

    Raises UsageError where none is free.
    """
    resolution, held_port = anew(launch.resolution, launch.environ)
    return launch._replace(resolution=resolution, held_port=held_port)


def plan(launch: Launch, restart: int = 0) -> list[Worker]:
    """The workers that this launcher starts, in the order of their local ranks.

    `restart` counts how often they have been started before. A single worker stays in the
    launcher's session, so that it has the terminal. Raises UsageError for flags that do not fit
    the ranks that there are.
    """
    request, resolution, seats, environ, hostname, scratch, columns, _ = launch
    check_filters(request, resolution.world)
    world, exports = resolution.world, resolution.exports
    run = os.path.basename(scratch)  # unique, so it is the mark of this run as well
    workers = []
    logs = directories(request.log_dir, world, len(seats), hostname, restart)
    for i, (seat, files) in enumerate(zip(seats, logs, strict=True)):
        rank = world.rank + i
        streams, before_lines = (
            routes(request, world, i, files),
            prefix(request, world, i, hostname),
        )
        several = len(seats) > 1
        own: dict[str, object] = {
            "TORCHELASTIC_RESTART_COUNT": restart,
            "TORCHELASTIC_MAX_RESTARTS": request.max_restarts,
            ERROR_FILE: _error_file(world, rank, files, environ, scratch),
            COLUMNS: columns - len(before_lines)
            if columns and several and streams.stdout.shown
            else None,
        }
        wants_stacks = request.hang_timeout_s or request.stack_on_usr2
        own[STACK_SIGNAL] = signals.STACKS or None if wants_stacks else None
        if world.mode != "task":
            own[MARK] = f"{run}.{rank}"
        told = environment(request, world, i, seat, exports, own, environ)
        workers.append(
            Worker(
                rank=rank,
                local_rank=world.local_rank + i,
                command=command(_told_local_rank(request, told), request.python),
                environ=told,
                seat=seat,
                mem_bind=request.mem_bind,
                own_session=several,
                routes=streams,
                prefix=before_lines,
            )
        )
    return workers


def _error_file(
    world: World, rank: int, files: str | None, environ: Mapping[str, str], scratch: str
) -> str | None:
    """Where torch's @record writes; in task mode only if the user named a file, one per rank."""
    if world.mode == "task":
        given = environ.get(ERROR_FILE)
        return own_file(given, world) if given else None
    return os.path.join(files, "error.json") if files else os.path.join(scratch, f"{rank}.json")


def _told_local_rank(request: Request, told: Mapping[str, str]) -> Program:
    """The program with its local rank as first argument, where --local-rank-arg asks for it."""
    flag, program = request.local_rank_arg, request.program
    if not flag:
        return program
    return program._replace(args=(f"{flag}={told['LOCAL_RANK']}", *program.args))


def command(program: Program, python: str) -> tuple[str, ...]:
    """The worker's argv; Python is unbuffered, so that what a worker said is never lost with it."""
    if program.kind == "program":
        return (program.target, *program.args)
    if program.kind == "module":
        return (python, "-u", "-m", program.target, *program.args)
    target = BUNDLED if program.kind == "bundled" else program.target
    return (python, "-u", target, *program.args)


def start(
    worker: Worker,
    signal_mask: Iterable[int],
    prepare: Callable[[Worker], None],
    turn_into: Callable[[Worker, Iterable[int]], NoReturn],
) -> int:
    """Fork a process that becomes the worker; the result is its pid.

    It first does what `prepare` says, then `turn_into` does not return; `signal_mask` is the mask
    that the worker starts with. Raises OSError where there can be no other process.
    """
    pid = os.fork()
    if pid == 0:
        try:
            prepare(worker)
            turn_into(with_pid(worker), signal_mask)
        except Exception as error:
            say([f"{worker.name}: cannot start: {error!r}"])
        finally:
            os._exit(CANNOT_EXECUTE)  # whatever happened: never run on as a second parent
    return pid


def with_pid(worker: Worker) -> Worker:
    """The worker as this process is to be it: Slurm tells each task its own pid."""
    if worker.environ.get(TASK_PID) != ITS_OWN:
        return worker
    return worker._replace(environ={**worker.environ, TASK_PID: str(os.getpid())})


def refused(worker: Worker, error: OSError) -> str:
    """Why the worker could not be started: no more processes or descriptors, or no file for it."""
    what = f"cannot start {worker.name}: {error.strerror}"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{what}; see ulimit -n"
    if error.filename:
        return f"{what}: {error.filename}"
    if error.errno in (errno.EAGAIN, errno.ENOMEM):  # of fork(2)
        return f"{what}; see ulimit -u, and the pids limit of the cgroup"
    return what


def become(worker: Worker, signal_mask: Iterable[int]) -> NoReturn:
    """Turn this process into the worker. Pinned before exec, so all its threads inherit it."""
    try:
        settle(worker)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by our interpreter, not by the user
            signal.signal(ignored, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
        os.execvpe(worker.command[0], worker.command, worker.environ)
    except OSError as error:
        say([f"{worker.name}: cannot start {worker.command[0]!r}: {error.strerror}; check the "
             "program and its permissions"])  # fmt: skip
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE)


def settle(worker: Worker) -> None:
    """Session, files, mask and memory policy of the worker. Raises OSError."""
    if worker.own_session:
        os.setsid()
    _redirect(worker.routes.stdout, 1)
    _redirect(worker.routes.stderr, 2)
    _sit_down(worker)


def _sit_down(worker: Worker) -> None:
    """Mask and memory policy. What the machine refuses to all is said by its first rank alone."""
    refusals = [apply.pin(worker.seat)]
    memory = apply.place_memory(worker.seat, worker.mem_bind)
    if worker.local_rank == 0:
        refusals.append(memory)
    say(f"{worker.name}: {refusal}" for refusal in refusals if refusal)


def _redirect(route: Route, fd: int) -> None:
    """Open the file in place of the stream."""
    if route.file is not None and not route.shown:
        file = route.open()
        os.dup2(file, fd)
        os.close(file)
