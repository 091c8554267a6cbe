"""spawnlaunch: start one pinned PyTorch worker per device."""

__version__ = "0.2.0"

# What a program that imports this package may use. It imports nothing by itself: it is part of
# every launch. What type checkers see is in __init__.pyi.
__all__ = (
    "CurrentWorld",
    "ExplainedLaunch",
    "LaunchError",
    "UsageError",
    "WorkerError",
    "current_world",
    "explain_launch",
    "launch",
    "node_cpus",
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def __getattr__(name: str) -> object:
    """What is in spawnlaunch.api, when somebody asks for it."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("spawnlaunch.api"), name)
    raise AttributeError(f"module 'spawnlaunch' has no attribute {name!r}")


def node_cpus() -> "AbstractContextManager[None]":
    """Within it the calling thread, and what it starts, have the CPUs of all ranks of this node.

        with spawnlaunch.node_cpus():
            dataset = dataset.map(tokenize, num_proc=len(os.sched_getaffinity(0)))

    For what one rank does while the others wait. Threads that run already keep their CPUs, as those
    of torch's pool do. Under another launcher nothing changes.
    """
    from spawnlaunch import nodewide  # most who import this package do not need it

    return nodewide.node_cpus()
