"""Start a function in pinned workers, from a script, a notebook or a test.

    import spawnlaunch

    def greet(name):
        world = spawnlaunch.current_world()
        return f"{name} from rank {world.rank} of {world.size}"

    spawnlaunch.launch(greet, "hello", nproc=2)
    # ['hello from rank 0 of 2', 'hello from rank 1 of 2']

The launcher underneath is `python -m spawnlaunch`; keyword arguments are its flags. docs/library.md
tells more.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar, overload

from spawnlaunch import apart, walk
from spawnlaunch.base.errors import UsageError
from spawnlaunch.base.reading import excerpt, is_number
from spawnlaunch.calling import outcomes, sending
from spawnlaunch.calling.outcomes import LaunchError, WorkerError
from spawnlaunch.cli import flags as table
from spawnlaunch.cli import parsing

__all__ = (
    "CurrentWorld",
    "LaunchError",
    "UsageError",
    "WorkerError",
    "current_world",
    "explain_launch",
    "launch",
)

T = TypeVar("T")

_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "calling")
LAUNCHER, WORKER = os.path.join(_HERE, "called.py"), os.path.join(_HERE, "worker.py")
DEBUG = (
    "begin the function with: import debugpy; debugpy.listen(5679); debugpy.wait_for_client(), "
    "with nproc=1, and attach to that port"
)

# Flags of a command line that mean nothing to a function, and the advice to take instead.
NOT_HERE = {
    "--help": "help(spawnlaunch.launch) is for a function",
    "--version": "spawnlaunch.__version__ has it",
    "--completion": "it is for a shell; run spawnlaunch --completion bash",
    "-m": "it is for modules; a function of a module is launched as any other",
    "--no-python": "it is for programs; call subprocess.run in the function",
    "--local-rank-arg": "it is for scripts; the function reads spawnlaunch.current_world()",
    "--debug": "it needs the terminal of a command; run spawnlaunch --debug RANK script.py",
    "--explain": "call spawnlaunch.explain_launch",
}


class CurrentWorld(NamedTuple):
    """The rank of this process and the sizes of its launch."""

    rank: int
    size: int  # of the world: the number of all ranks
    local_rank: int
    local_size: int  # the number of ranks on this node
    node_rank: int
    nodes: int
    master_addr: str
    master_port: int
    restart: int  # how often the workers have been started before


@overload
def launch(
    function: Callable[..., Coroutine[Any, Any, T]],
    *args: Any,
    nproc: int | str = 1,
    **flags: Any,
) -> list[T]: ...


@overload
def launch(
    function: Callable[..., T], *args: Any, nproc: int | str = 1, **flags: Any
) -> list[T]: ...


def launch(
    function: Callable[..., Any], *args: Any, nproc: int | str = 1, **flags: Any
) -> list[Any]:
    """Call `function(*args)` in `nproc` pinned workers; return their results, by rank.

    `nproc` is a number, or "gpu", "cpu" or "auto". Other keyword arguments are flags of the
    launcher, `spawnlaunch --help` lists them: `bind="none"`, `max_restarts=1`, `timeout=60`,
    `quiet=True`. Keyword arguments of the function go into it with functools.partial. The
    coroutine of an `async def` is run to its end.

    Workers are new processes, with the ranks' variables (RANK, LOCAL_RANK, MASTER_ADDR, ...) in
    their environment; nothing of this process is in them but the function, its arguments,
    sys.path and the environment. Their output is shown as the launcher's own lines are, on
    sys.stdout and sys.stderr. With cloudpickle (`pip install cloudpickle`) a function of a notebook
    or a script goes by value; the script is not run again in the workers, and needs no
    `if __name__ == "__main__"`. Without it the workers import the script, as those of
    multiprocessing do, and it needs that.

    With a launcher on each of several nodes, each gives the results of its own node's ranks.

    Raises WorkerError for the first rank that failed, also for one that has ended with 0 before
    its function returned; LaunchError for a launch that was ended from outside or by its timeout;
    UsageError for arguments that cannot be launched. An exception that ends or skips, and is no
    Exception (SystemExit, KeyboardInterrupt), or is unittest.SkipTest, is raised as itself, from a
    WorkerError. With `quiet=True` nothing of the launcher's own is shown: an exception has it among
    its notes. On KeyboardInterrupt the workers are stopped before it is raised; a second one kills
    them.
    """
    words = command_line({"nproc": nproc, **flags}, WORKER)
    with TemporaryDirectory(prefix="spawnlaunch-call-") as directory:
        try:
            sending.send(function, args, directory)
        except UsageError as refused:  # the line says all: no frames of ours above it
            raise refused.with_traceback(None) from refused.__cause__
        ended = os.path.join(directory, sending.ENDED)
        if flags.get("result") is None:
            words.insert(0, f"--result={ended}")
        else:
            ended = os.path.abspath(flags["result"])
        apart.print_unfollowed(DEBUG)
        command = (sys.executable, LAUNCHER, str(os.getpid()), directory, *words, directory)
        try:
            status, interrupts = apart.run_child(
                command, {signal.SIGINT}, is_apart=True, stdin=subprocess.DEVNULL
            )
            if interrupts:
                signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as interrupt:
            outcomes.noted(interrupt, directory)
            raise
        return outcomes.results(directory, ended, status)


def explain_launch(nproc: int | str = 1, **flags: Any) -> dict[str, Any]:
    """Return what `launch` with these flags would start, with the source of each value.

    Nothing is started. The result is that of `spawnlaunch --explain=json`, as a dictionary: world,
    the source of each value, the machine, and for each worker its CPUs, device, memory, environment
    and command.
    Raises UsageError.
    """
    words = command_line({"nproc": nproc, **flags}, "--explain=json", WORKER)
    try:
        walk.walk(words, dict(os.environ), (), frozenset())
    except table.Page as explained:
        page: dict[str, Any] = json.loads(str(explained))
        return page
    raise AssertionError("--explain ends in a page")


def current_world() -> CurrentWorld | None:
    """Return the rank of this process, by its launcher's variables; None outside of a launch.

    Workers of torchrun have the same variables. Raises UsageError where one of them is no number.
    """
    environ = os.environ
    if not all(environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        return None
    rank, size, local_rank = (_number(name, None) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    return CurrentWorld(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=_number("LOCAL_WORLD_SIZE", size),
        node_rank=_number("GROUP_RANK", 0),
        nodes=_number("GROUP_WORLD_SIZE", 1),
        master_addr=environ.get("MASTER_ADDR", ""),
        master_port=_number("MASTER_PORT", 0),
        restart=_number("TORCHELASTIC_RESTART_COUNT", 0),
    )


def _number(name: str, otherwise: int | None) -> int:
    text = os.environ.get(name, "")
    if not text and otherwise is not None:
        return otherwise
    if not is_number(text):
        raise UsageError(
            f"{name}={excerpt(text)} is not a whole number; unset {name}, or correct it"
        )
    return int(text)


# Keyword arguments as words of a command line, by the launcher's table of flags


def command_line(flags: Mapping[str, object], *program: str) -> list[str]:
    """The flags as words of a command line that has been checked, with `program` after them.

        max_restarts=1         --max-restarts=1
        oversubscribe=True     --oversubscribe
        ranks_filter=[0, 4]    --ranks-filter=0,4
        smt=False              --smt=off
        timeout=None           nothing

    Raises UsageError for a name that is no flag, or a value that the flag cannot have.
    """
    words = [word for name, value in flags.items() for word in _words(name, value)]
    parsing.parse([*words, *program], os.environ, sys.executable)
    return [*words, *program]


def _words(name: str, value: object) -> list[str]:
    typed = f"--{name.replace('_', '-')}"
    flag = table.spelt(typed)
    if flag is None and not name.isidentifier():
        raise UsageError(f"{name!r} is not the name of a flag; use max_restarts=1 for a flag")
    if flag and flag.name in NOT_HERE:
        raise UsageError(f"{name}= is not available here: {NOT_HERE[flag.name]}")
    if isinstance(value, bool) and flag and flag.read and not callable(flag.read):
        value = next((text for text, meant in flag.read.items() if meant is value), value)
    if value is None or value is False:
        return []
    is_switch = value is True and not (flag and flag.read)
    return [typed] if is_switch else [f"{typed}={_text(name, value)}"]


def _text(name: str, value: object) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, (str, int, os.PathLike)):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".")
    if isinstance(value, (list, tuple, range)):
        return ",".join(_text(name, each) for each in value)
    kind = type(value).__name__
    raise UsageError(
        f"{name}={value!r}: a {kind} cannot be a flag's value; write it as on the command line, "
        f"{name}='...' (spawnlaunch --help)"
    )
