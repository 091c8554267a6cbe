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

from itertools import islice

from spawnlaunch.base import reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias, TypeVar

    T = TypeVar("T")
    Bracket: TypeAlias = tuple[int, str]  # position and text of the inside of two brackets
    Entry: TypeAlias = tuple[list[str], list[Bracket]]  # n + 1 texts around n brackets

MAX_HOSTS = 1_000_000  # beyond any machine; expand() of a mistyped range must not eat the memory
MAX_BRACKETS = 32  # in one name; Slurm itself nests far fewer


class ListError(ValueError):
    """A list that cannot be read; the message has the place, the text, and what to write."""


def expand(text: str) -> list[str]:
    """Every host in order, repetitions kept. Raises ListError, also above MAX_HOSTS."""
    names = [*islice(hosts(text), MAX_HOSTS + 1)]
    if len(names) > MAX_HOSTS:
        raise ListError(
            f"host list {reading.excerpt(text)} names more than {MAX_HOSTS} hosts; look for a "
            "range with a digit too many"
        )
    return names


def hosts(text: str) -> Iterator[str]:
    """Yield the hosts one by one, reading no further than needed. Raises ListError."""
    for (name, *rest), brackets in _entries(text):
        for numbers in _combinations(text, _turned(brackets)):
            yield name + "".join(map(str.__add__, _turned(numbers), rest))


def _turned(items: list[T]) -> list[T]:
    """Reverse all but the last item: from the order in the name to that of turning, and back."""
    return [*items[-2::-1], *items[-1:]]


def _combinations(text: str, brackets: list[Bracket]) -> Iterator[list[str]]:
    """Yield every choice of one number per bracket, the last turning fastest; stores none."""
    if not brackets:
        yield []
        return
    for slower in _combinations(text, brackets[:-1]):
        for numbers, width in _ranges(text, brackets[-1]):
            for number in numbers:
                yield [*slower, f"{number:0{width}d}"]


def _entries(text: str) -> Iterator[Entry]:
    """Cut the list at commas and spaces outside brackets; like Slurm, skip empty entries."""
    outside: list[str] = []
    brackets: list[Bracket] = []
    begin, opening, is_empty = 0, -1, True
    for i, character in enumerate(text + ","):
        if opening >= 0 and character == "]":
            brackets.append((opening + 1, text[opening + 1 : i]))
            begin, opening = i + 1, -1
        elif opening >= 0 and character == "[":
            break
        elif opening < 0 and character == "]":
            raise _error(text, i, "this ] closes no [; remove it, or open it: gpu[1-3]")
        elif opening < 0 and character in "[, \t\n":
            outside.append(text[begin:i])
            begin = i + 1
            if character == "[":
                opening = i
                if len(brackets) == MAX_BRACKETS:
                    why = "too many brackets in a name; put commas between hosts"
                    raise _error(text, i, why)
                continue
            if outside != [""]:
                is_empty = False
                yield outside, brackets
            outside, brackets = [], []
    if opening >= 0:
        raise _error(text, opening, "this [ is not closed; close it: gpu[1-3]")
    if is_empty:
        raise ListError(
            f"host list {reading.excerpt(text)} names no host; a host list reads like gpu7 or "
            "gpu[1-3,5]"
        )


def _ranges(text: str, bracket: Bracket) -> Iterator[tuple[range, int]]:
    """Yield the ranges between two brackets, each with the width that its numbers are padded to."""
    position, inside = bracket
    for item in inside.split(","):
        ends, colon, step = item.partition(":")
        first, dash, last = ends.partition("-")
        digits = (first, last if dash else first, step if colon else "1")
        if not all(map(reading.is_number, digits)) or not int(digits[2]) or (colon and not dash):
            why = f"{reading.excerpt(item)} is not a number of at most {reading.MAX_DIGITS} digits "
            why += "or a range; write gpu[1-3,5], or gpu[0-8:4] for every fourth"
            raise _error(text, position, why)
        low, high, stride = map(int, digits)
        if high < low:
            raise _error(text, position, f"{item} runs backwards; write [{last}-{first}]")
        yield range(low, high + 1, stride), len(first)
        position += len(item) + 1


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
