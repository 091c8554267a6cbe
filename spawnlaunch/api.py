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
import sys
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, overload

from spawnlaunch.calling import flags as flag_words
from spawnlaunch.calling import outcomes, running, shipping
from spawnlaunch.calling.outcomes import LaunchError, WorkerError
from spawnlaunch.errors import UsageError
from spawnlaunch.explained import ExplainedLaunch
from spawnlaunch.failures import how_it_ended
from spawnlaunch.reading import excerpt, is_number

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = (
    "CurrentWorld",
    "ExplainedLaunch",
    "LaunchError",
    "UsageError",
    "WorkerError",
    "current_world",
    "explain_launch",
    "launch",
)

T = TypeVar("T")

_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "calling")
LAUNCHER, WORKER = os.path.join(_HERE, "launcher.py"), os.path.join(_HERE, "worker.py")


class CurrentWorld(NamedTuple):
    """Who this process is, among how many."""

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
    """Call `function(*args)` in `nproc` pinned workers; the result is what each returned, by rank.

    `nproc` is a number, or "gpu", "cpu" or "auto". Other keyword arguments are flags of the
    launcher, `spawnlaunch --help` lists them: `bind="none"`, `max_restarts=1`, `timeout=60`,
    `quiet=True`. Keyword arguments of the function go into it with functools.partial. The
    coroutine of an `async def` is run to its end.

    Workers are new processes, with the ranks' variables (RANK, LOCAL_RANK, MASTER_ADDR, ...) in
    their environment; nothing of this process is in them but the function, its arguments,
    sys.path and the environment. What they print is shown as the launcher's own lines are, on
    sys.stdout and sys.stderr. A function of a notebook or a script goes by value, which needs
    cloudpickle (`pip install cloudpickle`); the script is not run again in the
    workers, and needs no `if __name__ == "__main__"`.

    With a launcher on each of several nodes, each gives the results of its own node's ranks.

    Raises WorkerError for the first rank that failed, also for one that has ended with 0 before
    its function returned; LaunchError for a launch that was ended from outside or by its timeout;
    UsageError for what cannot be launched. What is raised to end or to skip, and is no Exception
    (SystemExit, KeyboardInterrupt, what pytest.skip raises), or is unittest.SkipTest or what
    pytest.exit raises, is raised as itself, from a WorkerError. With `quiet=True` nothing of the
    launcher's own is shown: an exception has it among its notes. On KeyboardInterrupt the workers
    are stopped before it is raised; a second one kills them.
    """
    given = flag_words.words({"nproc": nproc, **flags}, function)
    flag_words.check(given, WORKER)
    with TemporaryDirectory(prefix="spawnlaunch-call-") as directory:
        shipping.send(function, args, directory)
        ended = os.path.join(directory, shipping.ENDED)
        if flags.get("result") is None:
            given.append(f"--result={ended}")
        else:
            ended = os.path.abspath(flags["result"])
        try:
            status = running.run(_command(given, directory))
        except KeyboardInterrupt as interrupt:
            outcomes.noted(interrupt, directory)
            raise
        return outcomes.results(directory, ended, status)


def explain_launch(nproc: int | str = 1, **flags: Any) -> ExplainedLaunch:
    """What `launch` with these flags would start, and why; it starts nothing.

    The same as `spawnlaunch --explain=json`, as a dictionary: world, the source of each value, the
    machine, and for each worker its CPUs, device, memory, environment and command.
    Raises UsageError.
    """
    given = flag_words.words({"nproc": nproc, **flags})
    flag_words.check([*given, "--explain=json"], WORKER)
    with TemporaryDirectory(prefix="spawnlaunch-call-") as directory:
        status = running.run(_command([*given, "--explain=json"], directory))
        if refused := outcomes.refusal(directory):
            raise refused
        if status:
            raise LaunchError(f"the launcher {how_it_ended(status)}", status)
        with open(os.path.join(directory, shipping.PAGE)) as file:
            return cast(ExplainedLaunch, json.load(file))


def current_world() -> CurrentWorld | None:
    """Who this process is, by the variables that its launcher has set; None outside of a launch.

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
    said = os.environ.get(name, "")
    if not said and otherwise is not None:
        return otherwise
    if not is_number(said):
        raise UsageError(
            f"{name}={excerpt(said)} is not a whole number; type unset {name}, or correct it"
        )
    return int(said)


def _command(given: list[str], directory: str) -> list[str]:
    pid = str(os.getpid())
    return [sys.executable, LAUNCHER, pid, directory, *given, WORKER, directory]
