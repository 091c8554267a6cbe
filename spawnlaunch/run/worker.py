"""One worker: its environment, its command, and the steps from fork to exec."""

import os
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

from spawnlaunch.binding import Binding
from spawnlaunch.cli import Program, Request
from spawnlaunch.world import World

CANNOT_EXECUTE = 126  # the shell's exit statuses for a program that is there but cannot run,
NOT_FOUND = 127  # and for one that is not there (POSIX, XCU 2.8.2)

# The bundled loop is found beside this package, where both were installed, and started by its path:
# a train.py or train/ of the user's is never taken for it.
_INSTALLED = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUNDLED = os.path.join(_INSTALLED, "train", "__main__.py")


class Worker(NamedTuple):
    """A process to be started."""

    rank: int
    local_rank: int
    command: tuple[str, ...]
    environ: Mapping[str, str]  # complete: nothing else is inherited
    cpus: frozenset[int]  # empty: not pinned
    own_session: bool


def plan(
    request: Request,
    world: World,
    seats: tuple[Binding, ...],
    error_dir: str,
    environ: Mapping[str, str],
) -> list[Worker]:
    """The workers that this launcher starts, in the order of their local ranks.

    A single worker stays in the launcher's session, so that it has the terminal.
    """
    return [
        Worker(
            rank=world.rank + i,
            local_rank=i,
            command=command(request.program, request.python),
            environ=environment(world, i, seat, os.path.join(error_dir, f"{i}.json"), environ),
            cpus=seat.cpus,
            own_session=len(seats) > 1,
        )
        for i, seat in enumerate(seats)
    ]


def command(program: Program, python: str) -> tuple[str, ...]:
    """The worker's argv; Python is unbuffered, so that what a worker said is never lost with it."""
    if program.kind == "program":
        return (program.target, *program.args)
    if program.kind == "module":
        return (python, "-u", "-m", program.target, *program.args)
    target = BUNDLED if program.kind == "bundled" else program.target
    return (python, "-u", target, *program.args)


def environment(
    world: World, i: int, seat: Binding, error_file: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment of worker `i` of this launcher: the inherited one and torchrun's contract.

    Source of the names: torch.distributed.run's documentation, "Environment Variables"; NODE_RANK
    is what Composer and Lightning read. TORCHELASTIC_USE_AGENT_STORE must be False: an inherited
    True tells rank 0 that somebody else listens on MASTER_PORT.
    """
    rank = world.rank + i
    ours = {
        "RANK": rank,
        "WORLD_SIZE": world.world_size,
        "LOCAL_RANK": i,
        "LOCAL_WORLD_SIZE": world.local_world_size,
        "NODE_RANK": world.node_rank,
        "GROUP_RANK": world.node_rank,
        "GROUP_WORLD_SIZE": world.nnodes,
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world.world_size,
        "MASTER_ADDR": world.master_addr,
        "MASTER_PORT": world.master_port,
        "TORCHELASTIC_RUN_ID": world.run_id,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_ERROR_FILE": error_file,
        "TORCHELASTIC_USE_AGENT_STORE": False,
    }
    unless_set = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        "OMP_NUM_THREADS": seat.threads,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    return {
        **{name: str(value) for name, value in unless_set.items()},
        **environ,
        **{name: str(value) for name, value in ours.items()},
    }


def start(worker: Worker, signal_mask: Iterable[int]) -> int:
    """Fork a process that becomes the worker; the result is its pid.

    `signal_mask` is the mask that the worker starts with.
    """
    pid = os.fork()
    if pid == 0:
        become(worker, signal_mask)
    return pid


def become(worker: Worker, signal_mask: Iterable[int]) -> NoReturn:
    """Turn this process into the worker. Pinned before exec, so all its threads inherit it."""
    try:
        if worker.own_session:
            os.setsid()
        if worker.cpus:
            os.sched_setaffinity(0, worker.cpus)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by our interpreter, not by the user
            signal.signal(ignored, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
        os.execvpe(worker.command[0], worker.command, worker.environ)
    except OSError as error:
        print(
            f"spawnlaunch: rank {worker.rank}: cannot start {worker.command[0]!r}: "
            f"{error.strerror}; check the program and its permissions",
            file=sys.stderr,
            flush=True,
        )
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE)
