"""spawnlaunch: start one pinned PyTorch worker per device."""

__version__ = "0.2.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def node_cpus() -> "AbstractContextManager[None]":
    """Within it the calling thread, and what it starts, have the CPUs of all ranks of this node.

        with spawnlaunch.node_cpus():
            dataset = dataset.map(tokenize, num_proc=len(os.sched_getaffinity(0)))

    For what one rank does while the others wait. Threads that run already keep their CPUs, as those
    of torch's pool do. Under another launcher nothing changes.
    """
    from spawnlaunch import nodewide  # most who import this package do not need it

    return nodewide.node_cpus()
