"""spawnlaunch: start one pinned PyTorch worker per device."""

__version__ = "0.3.0"

# The names of spawnlaunch.api, for programs that import this package. It is imported when one of
# them is used: no launch needs it. Type checkers read __init__.pyi.
OF_API = (
    *("CurrentWorld", "LaunchError", "UsageError", "WorkerError"),
    *("current_world", "explain_launch", "launch"),
)
__all__ = ("node_cpus", *OF_API)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def _of_api(name: str) -> object:
    from importlib import import_module

    return getattr(import_module("spawnlaunch.api"), name)


# Python asks here for each module that a launch imports from this package, before it looks for its
# file. So it is object's own look-up, which says no without running a line of ours.
_found = {name: property(lambda _, name=name: _of_api(name)) for name in OF_API}
__getattr__ = type("spawnlaunch", (), _found)().__getattribute__


def node_cpus() -> "AbstractContextManager[None]":
    """Let the calling thread use the CPUs of all ranks of this node within the context.

        with spawnlaunch.node_cpus():
            dataset = dataset.map(tokenize, num_proc=len(os.sched_getaffinity(0)))

    It is for work that one rank does while the others wait; processes that the thread starts have
    these CPUs too. Threads that run already keep their CPUs, as those of torch's pool do. Under
    another launcher nothing changes.
    """
    from spawnlaunch.base import cpuset  # most programs that import this package do not need it

    return cpuset.node_cpus()
