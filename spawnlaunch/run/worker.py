"""One worker: its environment, its command, and how a process becomes it."""

from __future__ import annotations

import os

from spawnlaunch.binding import apply
from spawnlaunch.records import NamedTuple
from spawnlaunch.run import routes
from spawnlaunch.run.environment import COLUMNS, ERROR_FILE, MARK, STACK_SIGNAL, environment
from spawnlaunch.run.say import say
from spawnlaunch.run.signals import STACKS, set_default, signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import NoReturn

    from spawnlaunch.binding.apply import Binding
    from spawnlaunch.request import Request
    from spawnlaunch.run.routes import Route, Routes
    from spawnlaunch.world.host import HeldPort
    from spawnlaunch.world.model import Resolution, World

CANNOT_EXECUTE = 126  # the shell's exit statuses for a program that is there but cannot run,
NOT_FOUND = 127  # and for one that is not there (POSIX, XCU 2.8.2)
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)  # by our interpreter, not by the user
UNKNOWN_COLUMNS = 80  # of a terminal that does not tell

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
    binding: Binding
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
    scratch: str  # a directory for files that need not outlive the launch; its name marks the run
    held_port: HeldPort | None  # MASTER_PORT, where this launcher has chosen it

    @property
    def mark(self) -> str:
        """The unique id of the run, which the workers' environments bear."""
        return os.path.basename(self.scratch)


def scratch_path(environ: Mapping[str, str]) -> str:
    """A name that no other launch on this machine has, nor in a container that shares /tmp."""
    name = f"spawnlaunch-{os.getpid()}-{os.urandom(4).hex()}"
    return os.path.join(environ.get("TMPDIR") or "/tmp", name)


def renewed(launch: Launch) -> Launch:
    """What another attempt is made of: another port, unless the user named one.

    Raises UsageError where none is free.
    """
    from spawnlaunch.world.host import renew_port

    resolution, held_port = renew_port(launch.resolution, launch.environ)
    return launch._replace(resolution=resolution, held_port=held_port)


def plan(launch: Launch, restart: int = 0) -> list[Worker]:
    """The workers that this launcher starts, in the order of their local ranks.

    `restart` counts how often they have been started before. A single worker stays in the
    launcher's session, so that it has the terminal. Raises UsageError for flags that do not fit
    the ranks that there are.
    """
    request, resolution, bindings, environ, hostname, scratch, _ = launch
    world, several = resolution.world, len(bindings) > 1
    routes.check_filters(request, world)
    logs = routes.directories(request.log_dir, world, len(bindings), hostname, restart)
    columns = _columns() if several else None
    wants_stacks = request.hang_timeout_s or request.stack_on_usr2
    workers = []
    for i, (binding, files) in enumerate(zip(bindings, logs, strict=True)):
        rank = world.rank + i
        streams = routes.routes(request, world, i, files)
        prefix = routes.prefix(request, world, i, hostname)
        own: dict[str, object] = {
            "TORCHELASTIC_RESTART_COUNT": restart,
            "TORCHELASTIC_MAX_RESTARTS": request.max_restarts,
            ERROR_FILE: _error_file(world, rank, files, environ, scratch),
            COLUMNS: columns - len(prefix) if columns and streams.stdout.shown else None,
            STACK_SIGNAL: STACKS or None if wants_stacks else None,
        }
        if not world.is_task:
            own[MARK] = f"{launch.mark}.{rank}"
        told = environment(request, world, i, binding, resolution.exports, own, environ)
        workers.append(
            Worker(
                rank=rank,
                local_rank=world.local_rank + i,
                command=command(request, told),
                environ=told,
                binding=binding,
                own_session=several,
                routes=streams,
                prefix=prefix,
            )
        )
    return workers


def _columns() -> int | None:
    """The width of the terminal that our stdout is; None where it is none."""
    try:
        return os.get_terminal_size(1).columns or UNKNOWN_COLUMNS
    except OSError:
        return None


def _error_file(
    world: World, rank: int, files: str | None, environ: Mapping[str, str], scratch: str
) -> str | None:
    """Where torch's @record writes; in task mode only if the user named a file, one per rank."""
    if world.is_task:
        given = environ.get(ERROR_FILE)
        return routes.own_file(given, world) if given else None
    return os.path.join(files, "error.json") if files else os.path.join(scratch, f"{rank}.json")


def command(request: Request, told: Mapping[str, str]) -> tuple[str, ...]:
    """The worker's argv, with its local rank as first argument where --local-rank-arg asks for it.

    Python is unbuffered, so that what a worker said is never lost with it.
    """
    program, flag = request.program, request.local_rank_arg
    args = (f"{flag}={told['LOCAL_RANK']}", *program.args) if flag else program.args
    if program.kind == "program":
        return (program.target, *args)
    if program.kind == "module":
        return (request.python, "-u", "-m", program.target, *args)
    target = BUNDLED if program.kind == "bundled" else program.target
    return (request.python, "-u", target, *args)


def exec_in_place(worker: Worker, mask: Iterable[int]) -> NoReturn:
    """Task mode: signals and exit status are the resource manager's own business.

    `mask` is the signals that the worker is started with blocked.
    """
    make_places([worker])
    exec_worker(worker, mask)


def make_places(workers: Sequence[Worker], scratch: str | None = None, restart: int = 0) -> None:
    """Make the places of the workers' files. Raises UsageError where one cannot be.

    `scratch` is a directory that is ours alone, and new; in task mode there is none.
    """
    for worker in workers:
        error_file = worker.environ.get(ERROR_FILE)
        is_elsewhere = error_file and os.path.dirname(error_file) != scratch
        if is_elsewhere or restart or any(route.file for route in worker.routes):
            from spawnlaunch.run import files  # few launches keep files

            files.make_places(worker.rank, worker.routes, error_file, scratch)


def exec_worker(worker: Worker, mask: Iterable[int]) -> NoReturn:
    """Turn this process into the worker. Pinned before exec, so all its threads inherit it."""
    try:
        take_place(worker)
        set_default(IGNORED)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(worker.command[0], worker.command, worker.environ)
    except OSError as error:
        say([f"{worker.name}: cannot start {worker.command[0]!r}: {error.strerror}; check the "
             "program and its permissions"])  # fmt: skip
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE)


def take_place(worker: Worker) -> None:
    """Session, files, mask and memory policy of the worker. Raises OSError.

    What the machine refuses to all is said by its first rank alone.
    """
    if worker.own_session:
        os.setsid()
    for fd, route in enumerate(worker.routes, start=1):
        if route.is_redirected:
            _redirect(route, fd)
    refusals = [apply.pin(worker.binding)]
    memory = apply.place_memory(worker.binding)
    if worker.local_rank == 0:
        refusals.append(memory)
    say(f"{worker.name}: {refusal}" for refusal in refusals if refusal)


def _redirect(route: Route, fd: int) -> None:
    """Open the file in place of the stream."""
    from spawnlaunch.run import files  # few launches keep files

    file = files.open_log(route)
    os.dup2(file, fd)
    os.close(file)
