"""How a worker is put together, and how a process becomes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from spawnlaunch.base import cpuset, errors, machine, reading, say, signals
from spawnlaunch.base.signals import signal
from spawnlaunch.binding import apply, placement
from spawnlaunch.cli import flags, parsing, values
from spawnlaunch.node import hardware, visible
from spawnlaunch.workers import environment, files, launches, routes
from spawnlaunch.world import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, TypeAlias

    # Turns this process into a worker, which begins with these signals blocked.
    BecomeWorker: TypeAlias = Callable[[launches.Worker, Iterable[int]], NoReturn]

CANNOT_EXECUTE = 126  # the shell's exit statuses for a program that is there but cannot run,
NOT_FOUND = 127  # and for one that is not there (POSIX, XCU 2.8.2)
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)  # by our interpreter, not by the user
UNKNOWN_COLUMNS = 80  # of a terminal that does not tell
TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"  # torchrun's variable: of the prefix of a line

# The bundled loop is part of this package, and is started by its path: a train.py or train/ of the
# user's is never taken for it.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUNDLED = os.path.join(_PACKAGE, "train", "__main__.py")


def complete(launch: launches.Launch) -> launches.Launch:
    """Return the launch with its files, grace, limits and notices, from flags and environment.

    Raises UsageError.
    """
    request, logs = launch.request, None
    lines: list[str] = []
    if request.log_dir is not None or request.redirects not in (None, values.StreamsByRank()):
        logs, lines = routes.choose_directories(request, launch.resolution, launch.scratch)
    result, error_file = request.result, launch.environ.get(environment.ERROR_FILE)
    if (result or error_file) and not launch.resolution.world.is_task:
        result, error_file = _files_of_launcher(launch, result, error_file)
    grace_s = request.grace_s
    default = launch.resolution.default_grace_s()
    if default and all(flag.name != "--grace" for flag, _, _ in request.typed_flags):
        grace_s = default.value
    failure_s = request.failure_grace_s
    if failure_s is None and launch.resolution.gathering:
        failure_s = min(grace_s, flags.FAILURE_GRACE_S)
    return launch._replace(
        logs=logs, notices=_notices(launch, lines), grace_s=grace_s,
        failure_grace_s=failure_s, result=result, error_file=error_file,
    )  # fmt: skip


def _notices(launch: launches.Launch, on_logs: Sequence[str]) -> tuple[say.Notice, ...]:
    """All notices of a launch, those about the job first; `on_logs` are lines about its files."""
    request, resolution, environ = launch.request, launch.resolution, launch.environ
    lines = parsing.warnings(request, resolution.world.has_several_nodes)
    if (request.result or environ.get(environment.ERROR_FILE)) and not resolution.gathering:
        lines += routes.lines_about_files(request, resolution.world, environ)
    script = request.program.target if request.program.kind == "script" else ""
    if len(launch.plan.bindings) > 1 and machine.isfile(script):  # a pipe is for a worker to read
        text = reading.file_text(script) or ""
        if "local_rank" in text or "local-rank" in text:
            from spawnlaunch.cli import torchrun

            lines += torchrun.advice_on_local_rank(request, text)
    of_node = [*launch.plan.warnings, *on_logs]
    if "stdout" in launch.closed:
        of_node.append("stdout is closed: what is written there is lost")
    both = say.notices(say.JOB, lines), resolution.notices, say.notices(say.NODE, of_node)
    return tuple(sorted(chain(*both), key=lambda notice: notice.scope))


def _files_of_launcher(
    launch: launches.Launch, result: str | None, error_file: str | None
) -> tuple[str | None, str | None]:
    """The names of this launcher's files, which the user named for all launchers.

    Raises UsageError. Whether an error file can be written is seen after a failure, rarely.
    """
    if not launch.resolution.gathering:  # of which one launcher writes for all
        world = launch.resolution.world
        result = result and routes.file_of_launcher(result, world)
        error_file = error_file and routes.file_of_launcher(error_file, world)
    result = result and reading.absolute(result, "--result")
    why = result and files.refusal(result)
    if why:
        raise errors.UsageError(f"--result {launch.request.result}: {why}")
    try:
        files.check_links(error_file or "/")
    except OSError as error:
        raise errors.UsageError(
            f"{environment.ERROR_FILE}={error_file}: {error.strerror}; name another"
        ) from None
    return result, error_file


def make_workers(launch: launches.Launch, restart: int = 0) -> list[launches.Worker]:
    """The workers that this launcher starts, in the order of their local ranks.

    `restart` counts how often they have been started before. A single worker stays in the
    launcher's session, so that it has the terminal. Raises UsageError for flags that do not fit
    the ranks that there are.
    """
    request, n = launch.request, len(launch.plan.bindings)
    outputs: Sequence[tuple[str | None, launches.Routes]] = [(None, launches.SHOWN)] * n
    if launch.logs is not None or request.ranks_filter or request.local_ranks_filter:
        outputs = routes.chosen(launch, restart)
    columns = None
    if n > 1:
        with suppress(OSError):  # our stdout is no terminal
            columns = machine.get_terminal_size(1).columns or UNKNOWN_COLUMNS
    on_places = {flag.name for flag in flags.FLAGS if flag.section == flags.BINDING}
    on_places.add("--oversubscribe")
    typed = dict.fromkeys(flag.name for flag, _, _ in request.typed_flags if flag.name in on_places)
    shared: dict[str, object] = {  # the variables that have one value for all workers
        "TORCHELASTIC_RESTART_COUNT": restart,
        "TORCHELASTIC_MAX_RESTARTS": request.max_restarts,
        **dict.fromkeys((environment.ERROR_FILE, environment.COLUMNS, *environment.TOKENS)),
        environment.STACK_SIGNAL: None,
        environment.STACK_FILES: None,
        environment.WITNESS: identity.WORKER_PID,
        environment.TASK: 1 if launch.resolution.world.is_task else None,
        environment.TYPED: " ".join(typed) or None,
        cpuset.NODE_CPUS: cpuset.format(launch.plan.shared),
        visible.DEVICES_OF: launch.seen.asked or None,
    }
    if request.needs_stacks:
        shared[environment.STACK_SIGNAL] = signals.STACKS or None
        shared[environment.STACK_FILES] = launch.scratch
    return [_worker(launch, i, *each, columns, shared) for i, each in enumerate(outputs)]


def _worker(
    launch: launches.Launch,
    i: int,
    error_file: str | None,
    streams: launches.Routes,
    columns: int | None,
    shared: Mapping[str, object],
) -> launches.Worker:
    """Make worker `i`; `error_file` is that of its files, `columns` the width of our terminal."""
    request, plan, world = launch.request, launch.plan, launch.resolution.world
    rank, local_rank, binding = world.rank + i, world.local_rank + i, plan.bindings[i]
    prefix = _prefix(launch, rank)
    is_shown = streams.stdout == launches.SHOWN.stdout
    width = columns - len(prefix) if columns and is_shown else None
    variables = {**shared, environment.COLUMNS: width}
    if not binding.cpus:
        variables[cpuset.NODE_CPUS] = None
    if width:
        size = {"COLUMNS": width, "LINES": machine.get_terminal_size(1).lines or None}
        variables |= {name: value for name, value in size.items() if name not in launch.environ}
    if not world.is_task:
        variables[environment.ERROR_FILE] = error_file or os.path.join(
            launch.scratch, f"{rank}.json"
        )
        variables[environment.MARK] = f"{launch.mark}.{rank}"
    elif named := launch.environ.get(environment.ERROR_FILE):
        variables[environment.ERROR_FILE] = routes.file_of_launcher(named, world)
    environ = environment.of_worker(launch, i, variables)
    return launches.Worker(
        rank=rank, local_rank=local_rank, environ=environ, binding=binding, prefix=prefix,
        command=command(request, environ, local_rank),
        has_session=len(plan.bindings) > 1 and rank != request.debug,
        routes=launches.SHOWN if rank == request.debug else streams,
    )  # fmt: skip


def worker_line(worker: launches.Worker, node: hardware.Node, host: str = "") -> str:
    """The line that says where a worker sits.

    `host` is named where the lines of several nodes are together.
    """
    omp = worker.environ["OMP_NUM_THREADS"]
    return placement.report_line(worker.rank, worker.binding, node, omp, host)


def _prefix(launch: launches.Launch, rank: int) -> str:
    """The text before each line of a worker; none where it is alone in the world.

    With several nodes the host's name is there too, as their outputs come together.
    """
    request, world = launch.request, launch.resolution.world
    if request.no_prefix or request.prefix == "never":
        return ""
    if world.world_size == 1 and request.prefix == "auto":
        return ""
    if template := launch.environ.get(TEMPLATE):
        from spawnlaunch.cli import torchrun

        local_rank = rank - world.rank + world.local_rank
        return torchrun.filled(template, request.role, rank, local_rank)
    return f"[{launch.host}:{rank}] " if world.has_several_nodes else f"[{rank}] "


def command(request: flags.Request, environ: Mapping[str, str], local_rank: int) -> tuple[str, ...]:
    """The worker's argv; its local rank comes first where --local-rank-arg asks for it.

    Python is unbuffered, so that a worker's output is never lost with it.
    """
    program, flag = request.program, request.local_rank_arg
    args = program.args
    if "$" in "".join(args):
        from spawnlaunch.cli import torchrun

        args = torchrun.substituted(args, str(local_rank))
    if flag:
        args = (f"{flag}={environ['LOCAL_RANK']}", *args)
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
    `scratch` is a new directory for this user alone; in task mode there is none.
    """
    # A cleaner of TMPDIR may have taken it.
    if restart and scratch and not files.is_owned_by_user(scratch):
        files.make_scratch(scratch)
    for worker in workers:
        error_file = worker.environ.get(environment.ERROR_FILE)
        is_elsewhere = error_file and os.path.dirname(error_file) != scratch
        if is_elsewhere or restart or any(route.file for route in worker.routes):
            files.prepare_files(worker.rank, worker.routes, error_file, scratch)


def exec_worker(worker: launches.Worker, blocked: Iterable[int]) -> NoReturn:
    """Turn this process into the worker.

    It is pinned before exec, so all its threads inherit the mask. `blocked` are the signals that it
    is started with blocked.
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
    """Set session, files, mask and memory policy of the worker, and note its pid in it.

    Raises OSError.

    The reason why a memory policy is refused is the same for all ranks of the node, so one rank
    prints it, in task mode that with local rank 0. Each rank prints why its own mask is refused.
    """
    if worker.has_session:
        signals.detach()
    for fd, route in enumerate(worker.routes if worker.routes != launches.SHOWN else (), start=1):
        if route.is_redirected:
            file = files.open_log(route)
            machine.set_blocking(file, True)  # now that it is the worker's
            machine.dup2(file, fd)
            machine.close(file)
    refusals = [apply.pin(worker.binding)]
    memory = apply.place_memory(worker.binding)
    if worker.binding.reports_memory:
        refusals.append(memory)
    say.say(f"{worker.name}: {refusal}" for refusal in refusals if refusal)
    variables = {identity.WORKER_PID: str(machine.getpid())}
    return worker._replace(environ={k: variables.get(v, v) for k, v in worker.environ.items()})


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
        if not worker.has_session:
            with suppress(OSError):  # in another session, or ended: there is no terminal to share
                machine.setpgid(0, launch.group)
        become(worker, launch.blocked)
    except Exception as error:
        status = say.fatal(error, prefix=f"{worker.name}: cannot start: ")
    finally:
        machine.exit_now(status)
