"""Read lists of hosts and of tasks without ``scontrol``, which containers often lack.

A host list of Slurm is entries separated by commas or white space. An entry is a name in which
every pair of brackets holds numbers and ranges of numbers:

    gpu7                     gpu7
    gpu[1-3]                 gpu1 gpu2 gpu3
    gpu[1,5-6]               gpu1 gpu5 gpu6
    gpu[08-10]               gpu08 gpu09 gpu10            padded as the range's first number
    gpu[0-8:4]               gpu0 gpu4 gpu8               every fourth
    gpu[1-2]-ib              gpu1-ib gpu2-ib              Slurm 23.11 and later
    rack[1-2]node[3-4]       rack1node3 rack1node4 rack2node3 rack2node4
    login,gpu[1-2],gpu1      login gpu1 gpu2 gpu1         a host may come twice

The order is that of ``scontrol show hostnames``, because SLURM_NODEID counts in it: the last
bracket of a name turns fastest, then the first, the second and so on.

The tasks per node follow the node list, not the ranks; equal neighbours are written once:

    2(x3),1                  2 tasks on nodes 0, 1 and 2; 1 task on node 3

Sources: slurm.conf(5), NodeName; scontrol(1), "show hostnames"; srun(1),
SLURM_STEP_TASKS_PER_NODE; Slurm's src/common/proc_args.c and its 23.11 changelog for suffixes.
"""

from __future__ import annotations

from itertools import islice, product

from spawnlaunch.base import reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeVar

    T = TypeVar("T")

MAX_HOSTS = 1_000_000  # beyond any machine; a mistyped range must not eat the memory


class ListError(ValueError):
    """A list that cannot be read; the message has the list, the mistake, and what to write."""


def expand(text: str) -> list[str]:
    """Every host in order, repetitions kept. Raises ListError, also above MAX_HOSTS."""
    names = [*islice(hosts(text), MAX_HOSTS + 1)]
    if len(names) > MAX_HOSTS:
        raise _too_many(text)
    return names


def hosts(text: str) -> Iterator[str]:
    """Yield the hosts one by one; of an entry that is not reached nothing is expanded.

    Raises ListError.
    """
    entries = _entries(text)
    if not entries:
        raise ListError(
            f"host list {reading.excerpt(text)} names no host; a host list reads like gpu7 or "
            "gpu[1-3,5]"
        )
    for entry in entries:
        name, *pieces = entry.split("[")
        if not pieces:
            yield name
            continue
        brackets, after = zip(*(piece.split("]") for piece in pieces), strict=True)
        turning = _turned([_numbers(text, bracket) for bracket in brackets])
        for numbers in product(*turning):
            yield name + "".join(map(str.__add__, _turned(numbers), after))


def _turned(items: Sequence[T]) -> list[T]:
    """Reverse all but the last item: from the order in the name to that of turning, and back."""
    return [*items[-2::-1], *items[-1:]]


def _entries(text: str) -> list[str]:
    """Split a list at the commas and blanks outside of brackets; like Slurm, skip empty entries."""
    entries, depth = [""], 0
    for i, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise _error(text, i, f"this {character} has no partner; write gpu[1-3]")
        if not depth and character in ", \t\n":
            entries.append("")
        else:
            entries[-1] += character
    if depth:
        raise _error(text, text.rindex("["), "this [ is not closed; close it: gpu[1-3]")
    return [entry for entry in entries if entry]


def _numbers(text: str, inside: str) -> list[str]:
    """The numbers between two brackets; those of a range are padded as its first one."""
    numbers: list[str] = []
    for item in inside.split(","):
        ends, colon, step = item.partition(":")
        first, dash, last = ends.partition("-")
        digits = (first, last if dash else first, step if colon else "1")
        if not all(map(reading.is_number, digits)) or not int(digits[2]) or (colon and not dash):
            why = f"{reading.excerpt(item)} is not a number of at most {reading.MAX_DIGITS} digits "
            why += "or a range; write gpu[1-3,5], or gpu[0-8:4] for every fourth"
            raise _error(text, text.index(f"[{inside}]"), why)
        low, high, stride = map(int, digits)
        if high < low:
            why = f"{item} runs backwards; write [{last}-{first}]"
            raise _error(text, text.index(f"[{inside}]"), why)
        if (high - low) // stride >= MAX_HOSTS:
            raise _too_many(text)
        numbers += [f"{number:0{len(first)}d}" for number in range(low, high + 1, stride)]
    return numbers


def _too_many(text: str) -> ListError:
    return ListError(
        f"host list {reading.excerpt(text)} names more than {MAX_HOSTS} hosts; look for a range "
        "with a digit too many"
    )


def tasks_on(counts: str, node: int) -> int:
    """The number of tasks on node `node` (SLURM_NODEID). Raises ListError."""
    first = 0
    for entry in counts.split(","):
        tasks, bracket, nodes = entry.partition("(x")
        nodes = (nodes[:-1] if nodes.endswith(")") else "") if bracket else "1"
        if not (reading.is_number(tasks) and reading.is_number(nodes) and int(nodes)):
            raise ListError(
                f"tasks per node {reading.excerpt(counts)}: {reading.excerpt(entry)} is not a "
                "count; write 2(x3),1 for 2 tasks on each of three nodes, then 1"
            )
        if first <= node < first + int(nodes):
            return int(tasks)
        first += int(nodes)
    raise ListError(
        f"tasks per node {reading.excerpt(counts)}: there is no node number {node}, only 0 to "
        f"{first - 1}"
    )


def _error(text: str, position: int, why: str) -> ListError:
    """Build a ListError; `position` counts from 0, and the message from 1."""
    return ListError(
        f"host list {reading.excerpt(text, position)}, character {position + 1}: {why}"
    )
