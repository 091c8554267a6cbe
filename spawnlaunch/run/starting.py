"""One worker: what it is made of, and how a process becomes it."""

from __future__ import annotations

import os
from contextlib import suppress

from spawnlaunch import cpuset, machine
from spawnlaunch.binding import apply, report
from spawnlaunch.run import environment, launches, say, signals
from spawnlaunch.run.signals import signal
from spawnlaunch.world import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import NoReturn, TypeAlias

    from spawnlaunch import flags
    from spawnlaunch.node import hardware

    # Turns this process into a worker, which begins with these signals blocked.
    BecomeWorker: TypeAlias = Callable[[launches.Worker, Iterable[int]], NoReturn]

CANNOT_EXECUTE = 126  # the shell's exit statuses for a program that is there but cannot run,
NOT_FOUND = 127  # and for one that is not there (POSIX, XCU 2.8.2)
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)  # by our interpreter, not by the user
UNKNOWN_COLUMNS = 80  # of a terminal that does not tell

# The bundled loop is part of this package, and is started by its path: a train.py or train/ of the
# user's is never taken for it.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUNDLED = os.path.join(_PACKAGE, "train", "__main__.py")


def scratch_path(environ: Mapping[str, str]) -> str:
    """A name that no other launch on this machine has, nor in a container that shares /tmp."""
    name = f"spawnlaunch-{machine.getpid()}-{machine.urandom(4).hex()}"
    return os.path.join(environ.get("TMPDIR") or "/tmp", name)


def make_workers(launch: launches.Launch, restart: int = 0) -> list[launches.Worker]:
    """The workers that this launcher starts, in the order of their local ranks.

    `restart` counts how often they have been started before. A single worker stays in the
    launcher's session, so that it has the terminal. Raises UsageError for flags that do not fit
    the ranks that there are.
    """
    request, n = launch.request, len(launch.plan.bindings)
    outputs: Sequence[tuple[str | None, launches.Routes]] = [(None, launches.SHOWN)] * n
    if launch.logs is not None or request.ranks_filter or request.local_ranks_filter:
        from spawnlaunch.run import routes

        outputs = routes.chosen(launch, restart)
    columns = _columns() if n > 1 else None
    told: dict[str, object] = {  # to all of them
        "TORCHELASTIC_RESTART_COUNT": restart,
        "TORCHELASTIC_MAX_RESTARTS": request.max_restarts,
        **dict.fromkeys((environment.ERROR_FILE, environment.COLUMNS, *environment.TOKENS)),
        environment.STACK_SIGNAL: None,
        environment.WITNESS: identity.ITS_OWN_PID,
        environment.NODE_CPUS: cpuset.format(launch.plan.allowed),
    }
    if request.hang_timeout_s or request.stack_on_usr2:
        from spawnlaunch.rollcall import flight

        told[environment.STACK_SIGNAL] = signals.STACKS or None
        told |= flight.variables(launch.environ, launch.scratch)
    return [_worker(launch, i, *each, columns, told) for i, each in enumerate(outputs)]


def _worker(
    launch: launches.Launch,
    i: int,
    error_file: str | None,
    streams: launches.Routes,
    columns: int | None,
    told: Mapping[str, object],
) -> launches.Worker:
    """One of them; `error_file` is where its files are, `columns` the width of our terminal."""
    request, plan, world = launch.request, launch.plan, launch.resolution.world
    rank, local_rank, binding = world.rank + i, world.local_rank + i, plan.bindings[i]
    prefix = _prefix(launch, rank)
    is_shown = streams.stdout == launches.SHOWN.stdout
    width = columns - len(prefix) if columns and is_shown else None
    own = {**told, environment.COLUMNS: width}
    if not binding.cpus:
        own[environment.NODE_CPUS] = None
    if width:
        own |= _size(width, launch.environ)
    if not world.is_task:
        own[environment.ERROR_FILE] = error_file or os.path.join(launch.scratch, f"{rank}.json")
        own[environment.MARK] = f"{launch.mark}.{rank}"
    elif named := launch.environ.get(environment.ERROR_FILE):
        from spawnlaunch.run import routes

        own[environment.ERROR_FILE] = routes.own_file(named, world)
    environ = environment.of_worker(launch, i, own)
    return launches.Worker(
        rank=rank, local_rank=local_rank, environ=environ, binding=binding, prefix=prefix,
        command=command(request, environ, local_rank),
        own_session=len(plan.bindings) > 1 and rank != request.debug,
        routes=launches.SHOWN if rank == request.debug else streams,
    )  # fmt: skip


def worker_line(worker: launches.Worker, node: hardware.Node, host: str = "") -> str:
    """Where a worker sits, for people; `host` is named where the lines of several are together."""
    omp = worker.environ["OMP_NUM_THREADS"]
    return report.report_line(worker.rank, worker.binding, node, omp, host)


def _prefix(launch: launches.Launch, rank: int) -> str:
    """What stands before each line of a worker; nothing for one that is alone in the world.

    With several nodes the host's name is there too, as their outputs come together.
    """
    request, world = launch.request, launch.resolution.world
    if request.no_prefix or request.prefix == "never":
        return ""
    if world.world_size == 1 and request.prefix == "auto":
        return ""
    if request.prefix_template:
        from spawnlaunch.torchrun import variables

        return variables.filled(
            request.prefix_template, rank, rank - world.rank + world.local_rank, request
        )
    return f"[{launch.host}:{rank}] " if world.has_several_nodes else f"[{rank}] "


def _columns() -> int | None:
    """The width of the terminal that our stdout is; None where it is none."""
    try:
        return machine.get_terminal_size(1).columns or UNKNOWN_COLUMNS
    except OSError:
        return None


def _size(width: int, environ: Mapping[str, str]) -> dict[str, object]:
    """That of our terminal, to which a pipe leads, and no file; what the user set stays."""
    size = {"COLUMNS": width, "LINES": machine.get_terminal_size(1).lines or None}
    return {name: value for name, value in size.items() if name not in environ}


def command(request: flags.Request, told: Mapping[str, str], local_rank: int) -> tuple[str, ...]:
    """The worker's argv, with its local rank as first argument where --local-rank-arg asks for it.

    Python is unbuffered, so that what a worker said is never lost with it.
    """
    program, flag = request.program, request.local_rank_arg
    args = program.args
    if "$" in "".join(args):
        from spawnlaunch.torchrun import variables

        args = variables.substituted(args, str(local_rank))
    if flag:
        args = (f"{flag}={told['LOCAL_RANK']}", *args)
    if program.kind == "program":
        return (program.target, *args)
    if program.kind == "module":
        return (request.python, "-u", "-m", program.target, *args)
    target = BUNDLED if program.kind == "bundled" else program.target
    return (request.python, "-u", target, *args)


def prepare_files(
    workers: Sequence[launches.Worker], scratch: str | None = None, restart: int = 0
) -> None:
    """Make directories and files for the workers' output and errors.

    Raises UsageError where that cannot be done.
    `scratch` is a directory that is ours alone, and new; in task mode there is none.
    """
    for worker in workers:
        error_file = worker.environ.get(environment.ERROR_FILE)
        is_elsewhere = error_file and os.path.dirname(error_file) != scratch
        if is_elsewhere or restart or any(route.file for route in worker.routes):
            from spawnlaunch.run import files  # few launches keep files

            files.prepare_files(worker.rank, worker.routes, error_file, scratch)


def exec_worker(worker: launches.Worker, blocked: Iterable[int]) -> NoReturn:
    """Turn this process into the worker. Pinned before exec, so all its threads inherit it.

    `blocked` is the signals that it is started with blocked.
    """
    try:
        worker = set_up_process(worker)
        for signum in IGNORED:
            machine.signal(signum, signal.SIG_DFL)
        machine.pthread_sigmask(signal.SIG_SETMASK, blocked)
        machine.execvpe(worker.command[0], worker.command, worker.environ)
    except OSError as error:
        if error.filename is None:
            raise
        say.say([f"{worker.name}: cannot start {worker.command[0]!r}: {error.strerror}; check the "
                 "program and its permissions"])  # fmt: skip
        machine.exit_now(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE)


def set_up_process(worker: launches.Worker) -> launches.Worker:
    """Session, files, mask and memory policy of the worker, which then has its pid as well.

    Raises OSError.

    Why a memory policy is refused is the same for all ranks of the node, so the one with local rank
    0 alone says it; why a mask is refused each rank says for itself.
    """
    if worker.own_session:
        signals.detach()
    for fd, route in enumerate(worker.routes if worker.routes != launches.SHOWN else (), start=1):
        if route.is_redirected:
            from spawnlaunch.run import files  # few launches keep files

            file = files.open_log(route)
            machine.dup2(file, fd)
            machine.close(file)
    refusals = [apply.pin(worker.binding)]
    memory = apply.place_memory(worker.binding)
    if worker.local_rank == 0:
        refusals.append(memory)
    say.say(f"{worker.name}: {refusal}" for refusal in refusals if refusal)
    own = {identity.ITS_OWN_PID: str(machine.getpid())}
    return worker._replace(environ={k: own.get(v, v) for k, v in worker.environ.items()})


def become_worker(
    worker: launches.Worker,
    launch: launches.Launch,
    become: BecomeWorker,
    first: Callable[[], object],
) -> NoReturn:
    """Turn a fork of the guard into the worker, by `become`; `first` is called before.

    A worker that shares the terminal joins the launcher's process group.
    """
    status = CANNOT_EXECUTE
    try:
        first()
        if not worker.own_session:
            with suppress(OSError):  # in another session, or ended: there is no terminal to share
                machine.setpgid(0, launch.group)
        become(worker, launch.blocked)
    except Exception as error:
        from spawnlaunch.run import refused

        status = refused.end(error, who=f"{worker.name}: cannot start: ")
    finally:
        machine.exit_now(status)
