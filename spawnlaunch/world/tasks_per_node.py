"""Slurm's counts of tasks per node: SLURM_STEP_TASKS_PER_NODE and SLURM_TASKS_PER_NODE.

One entry per node in the order of the node list, equal neighbours folded:

    4            one node with 4 tasks
    2(x3),1      2 tasks on nodes 0, 1 and 2; 1 task on node 3
    5,1(x2)      5 tasks on node 0; 1 task on nodes 1 and 2

The entries follow the node list, not the ranks: under a cyclic or arbitrary distribution the
tasks of a node are not neighbours in rank. Source: srun(1), SLURM_STEP_TASKS_PER_NODE.
"""

from spawnlaunch.reading import excerpt, is_number

TYPE_CHECKING = False  # typing is not imported to run: this module lies on the launch path
if TYPE_CHECKING:
    from collections.abc import Iterator


class TasksPerNodeError(ValueError):
    """Tasks per node that cannot be read, or that know nothing of the node asked for."""


def tasks_on(counts: str, node: int) -> int:
    """Tasks on node number `node` (SLURM_NODEID). Raises TasksPerNodeError."""
    first = 0
    for tasks, nodes in runs(counts):
        if first <= node < first + nodes:
            return tasks
        first += nodes
    raise TasksPerNodeError(
        f"tasks per node {excerpt(counts)}: there is no node number {node}, only 0 to {first - 1}"
    )


def totals(counts: str) -> tuple[int, int]:
    """(nodes, tasks) in all. Raises TasksPerNodeError."""
    nodes = tasks = 0
    for tasks_each, repeat in runs(counts):
        nodes += repeat
        tasks += tasks_each * repeat
    return nodes, tasks


def runs(counts: str) -> "Iterator[tuple[int, int]]":
    """(tasks on each, number of nodes) per entry; never unfolded. Raises TasksPerNodeError."""
    position = 0
    for entry in counts.split(","):
        tasks, bracket, repeat = entry.partition("(x")
        if bracket and not repeat.endswith(")"):
            raise _error(counts, position, f"the repetition of {excerpt(entry)} is not closed")
        nodes = _number(counts, position, entry, repeat[:-1]) if bracket else 1
        if nodes == 0:
            raise _error(counts, position, f"{excerpt(entry)} is repeated 0 times")
        yield _number(counts, position, entry, tasks), nodes
        position += len(entry) + 1


def _number(counts: str, position: int, entry: str, digits: str) -> int:
    if is_number(digits):
        return int(digits)
    raise _error(counts, position, f"{excerpt(entry)} is neither a count nor a repeated count")


def _error(counts: str, position: int, why: str) -> TasksPerNodeError:
    return TasksPerNodeError(
        f"tasks per node {excerpt(counts)}, character {position + 1}: {why}\n"
        f"hint: it reads like 2(x3),1: 2 tasks on each of three nodes, then 1"
    )
