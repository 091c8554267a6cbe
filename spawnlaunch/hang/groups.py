"""The roll call: a line for each group of processes with equal stacks of their main threads.

    rank 2 is in save_checkpoint (checkpoint.py:40)
    ranks 0-1,3-7 wait in all_reduce (train.py:88)
    7 processes below ranks 0-6 wait in get (train.py:61)

The smallest group comes first. The place is the innermost line of the user's own code; the name is
that of the library's function which this line has called, if it has.
"""

from __future__ import annotations

import os
import re
from functools import cache

from spawnlaunch.base import cpuset, records
from spawnlaunch.hang import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Files that are not the user's own: Python's library, and packages; none, but for a script that
# is read from stdin; and files of torch.compile: torch/_inductor/codecache.py, get_path.
LIBRARIES = re.compile(r".*(/lib(64)?/python3|/\w+-packages/)|<(?!stdin>)|.*/(\w\w)/c\3\w+\.py$")
is_library = cache(LIBRARIES.match)
# The user's program may be a package that was installed, and begin with -m or in a file of pip's.
PACKAGE, COMMAND = re.compile(r".*/\w+-packages/(?!torch/)\w+/"), re.compile(r".*/bin/[\w-]+$")
LOOP = "/spawnlaunch/train/"  # the bundled one is the user's program, wherever it is installed
# Decorators, through which a call goes on its way to the function that was called.
WRAPPERS = frozenset({
    "wrapper", "inner", "decorate_context", "_fn", "__call__", "_call_impl", "_wrapped_call_impl",
})  # fmt: skip
WAITING = frozenset({
    "wait", "join", "acquire", "get", "put", "select", "poll", "sleep", "recv", "accept", "read",
    "readline", "synchronize", "result", "communicate", "pause", "sigwait",
})  # fmt: skip
COLLECTIVES = "/torch/distributed/"


class Answer(records.NamedTuple):
    """The answer of one process, or the reason why it gave none."""

    rank: int
    is_worker: bool  # and no child of one
    how: str  # "told by itself", "by py-spy", or why it was not
    text: str  # the stacks, or else the process that has not shown them

    @property
    def place(self) -> tuple[str, frames.Stack]:
        """The key by which two processes' places are equal: the stack, or else the words."""
        stack = frames.main_stack(self.text)
        return ("" if stack else f"{self.text.strip()} ({self.how})", stack)


class Group(records.NamedTuple):
    """Processes that are in the same place."""

    ranks: list[int]  # one for each process
    is_worker: bool
    one: str  # the text after the name of one process, and of several
    several: str

    @property
    def line(self) -> str:
        """The group as a line for people."""
        where = self.several if len(self.ranks) > 1 else self.one
        return f"{_who(self.ranks, self.is_worker)} {where}"


def groups(answers: Iterable[Answer]) -> list[Group]:
    """The groups of processes that are in the same place, the smallest first."""
    found: dict[tuple[bool, str, frames.Stack], list[int]] = {}
    for one in answers:
        found.setdefault((one.is_worker, *one.place), []).append(one.rank)
    ordered = sorted(found.items(), key=lambda group: (len(group[1]), min(group[1])))
    return [
        Group(ranks, is_worker, *(_where(words, stack, several) for several in (False, True)))
        for (is_worker, words, stack), ranks in ordered
    ]


def _who(ranks: Sequence[int], is_worker: bool) -> str:
    count, listed = len(ranks), ranks_of(ranks)
    return listed if is_worker else f"{count} process{'es' * (count > 1)} below {listed}"


def ranks_of(ranks: Iterable[int]) -> str:
    """`rank 2`, `ranks 0-1,3`"""
    several = set(ranks)
    return f"rank{'s' * (len(several) > 1)} {cpuset.format(several)}"


def _where(words: str, stack: frames.Stack, several: bool) -> str:
    """The place in words, which follow the names of one or several processes."""
    be = "are" if several else "is"
    if not stack:
        return f"{be} {words}"
    at = own(stack)
    if at is None:
        return _said(stack[0], stack[0], several)
    called = [frame for frame in stack[: stack.index(at)] if frame.function not in WRAPPERS]
    return _said(called[-1] if called else at, at, several)


def _said(called: frames.Frame, at: frames.Frame, several: bool) -> str:
    waits = called.function.rpartition(".")[2] in WAITING or COLLECTIVES in called.file
    do = ("wait" if several else "waits") if waits else ("are" if several else "is")
    return f"{do} in {called.function} ({place_of(at)})"


def place_of(frame: frames.Frame) -> str:
    """`train.py:88`"""
    return f"{os.path.basename(frame.file)}:{frame.line or '?'}"


def own(stack: frames.Stack) -> frames.Frame | None:
    """The innermost call of the user's program, and not of a library."""
    users = (one for one in stack if LOOP in one.file or not is_library(one.file))
    found = next(users, None)
    if found is None or COMMAND.match(found.file):
        package = next(filter(None, (PACKAGE.match(one.file) for one in reversed(stack))), None)
        inside = (one for one in stack if package and one.file.startswith(package[0]))
        return next(inside, found)
    return found
