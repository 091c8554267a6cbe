r"""The roll call: a line for each group of processes with equal stacks of their main threads.

    rank 2 is in save_checkpoint (checkpoint.py:40)
    ranks 0-1,3-7 wait in all_reduce (train.py:88)
    7 processes below ranks 0-6 wait in get (train.py:61)

The smallest group comes first. The place is the innermost line of the user's own code; the name is
that of the library's function which this line has called, if it has.

Stacks come as text. faulthandler (Modules/faulthandler.c, Python/traceback.c) writes the thread
that took the signal last:

    Thread 0x00007fdb3ffdc6c0 (most recent call first):
      File "/home/me/train.py", line 24 in in_a_thread

    Current thread 0x00007fdb40a3fb80 (most recent call first):
      File "/home/me/train.py", line 38 in <module>

py-spy dump --full-filenames, and the witness:

    Thread 16307 (idle): "MainThread"
        wait_for_ever (/home/me/train.py:19)
        <module> (/home/me/train.py:38)
"""

from __future__ import annotations

import os
import re
from functools import cache

from spawnlaunch.base import cpuset, records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?+) in (?P<function>.*)')
_SPIED_THREAD = re.compile(r"Thread (?:0x)?[0-9A-Fa-f]+ \([^()]*\)(?:: \"(?P<name>.*)\")?")
_SPIED_FRAME = re.compile(r"    (?P<function>\S.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)")
# The outermost frame of all but the main thread: of those of threading, and of the witness.
_OF_A_THREAD = ("_bootstrap", "Thread._bootstrap", "_be_witness")

MOST_OF_A_LINE = 1 << 13  # a file's name has half of it: a longer line is none of a stack


class Frame(records.NamedTuple):
    """A function call that has not returned."""

    function: str
    file: str
    line: int  # 0: unknown


Stack = tuple[Frame, ...]  # the innermost call first

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


class StackText(records.NamedTuple):
    """The stacks of one process as text, or the reason why there are none."""

    rank: int
    is_worker: bool  # and no child of one
    source: str  # "by itself", "by py-spy", or why it was not
    text: str  # the stacks, or else the process that has not shown them


class Group(records.NamedTuple):
    """Processes that are in the same place."""

    ranks: list[int]  # one for each process
    is_worker: bool
    words_for_one_rank: str  # they follow the name of the process
    words_for_several_ranks: str

    @property
    def line(self) -> str:
        """The group as a line for people."""
        count, listed = len(self.ranks), ranks_of(self.ranks)
        if not self.is_worker:
            listed = f"{count} process{'es' * (count > 1)} below {listed}"
        words = self.words_for_several_ranks if count > 1 else self.words_for_one_rank
        return f"{listed} {words}"

    def as_recorded(self) -> dict[str, Any]:
        """The group as the record of --record has it."""
        return dict(zip(("ranks", "is_worker", "one", "several"), self, strict=True))


def groups(answers: Iterable[StackText]) -> list[Group]:
    """The groups of processes that are in the same place, the smallest first."""
    ranks: dict[tuple[bool, str, Stack], list[int]] = {}
    for answer in answers:
        stack = main_stack(answer.text)
        words = "" if stack else f"{answer.text.strip()} ({answer.source})"
        ranks.setdefault((answer.is_worker, words, stack), []).append(answer.rank)
    ordered = sorted(ranks.items(), key=lambda group: (len(group[1]), min(group[1])))
    return [
        Group(alike, is_worker, _where(words, stack, False), _where(words, stack, True))
        for (is_worker, words, stack), alike in ordered
    ]


def ranks_of(ranks: Iterable[int]) -> str:
    """`rank 2`, `ranks 0-1,3`"""
    several = set(ranks)
    return f"rank{'s' * (len(several) > 1)} {cpuset.format(several)}"


def _where(words: str, stack: Stack, is_of_several: bool) -> str:
    """The place in words, which follow the names of one or several processes."""
    be = "are" if is_of_several else "is"
    if not stack:
        return f"{be} {words}"
    at = user_frame(stack) or stack[0]
    called = [frame for frame in stack[: stack.index(at)] if frame.function not in WRAPPERS]
    call = called[-1] if called else at
    is_waiting = call.function.rpartition(".")[2] in WAITING or COLLECTIVES in call.file
    verb = f"wait{'' if is_of_several else 's'}" if is_waiting else be
    return f"{verb} in {call.function} ({_place(at)})"


def _place(frame: Frame) -> str:
    return f"{os.path.basename(frame.file)}:{frame.line or '?'}"


def user_place(stack: Stack) -> str:
    """`train.py:88`: the innermost line of the user's program; "" where there is none."""
    frame = user_frame(stack)
    return _place(frame) if frame else ""


def is_backward(stack: Stack) -> bool:
    """Whether the stack is of a backward pass of torch's."""
    return any(frame.function == "_engine_run_backward" for frame in stack)


def user_frame(stack: Stack) -> Frame | None:
    """The innermost call of the user's program, and not of a library."""
    users = (frame for frame in stack if LOOP in frame.file or not is_library(frame.file))
    innermost = next(users, None)
    if innermost is None or COMMAND.match(innermost.file):
        package = next(filter(None, (PACKAGE.match(frame.file) for frame in reversed(stack))), None)
        inside = (frame for frame in stack if package and frame.file.startswith(package[0]))
        return next(inside, innermost)
    return innermost


def main_stack(text: str) -> Stack:
    """The stack of the main thread; empty where the text has none."""
    named: Stack = ()
    stacks: list[Stack] = []
    for name, stack in _threads(text):
        if name == "MainThread":
            named = stack
        stacks.append(stack)
    main = (stack for stack in stacks if stack and stack[-1].function not in _OF_A_THREAD)
    return named or next(main, ()) or next(filter(None, reversed(stacks)), ())


def _threads(text: str) -> list[tuple[str, Stack]]:
    """The name of each thread, as far as it is known, and its stack."""
    threads: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if len(line) > MOST_OF_A_LINE:
            continue
        if spied := _SPIED_THREAD.fullmatch(line):
            threads.append((spied["name"] or "", []))
        elif _THREAD.fullmatch(line):
            threads.append(("", []))
        elif threads and (frame := _FRAME.fullmatch(line) or _SPIED_FRAME.fullmatch(line)):
            at = frame["line"] or ""
            number = int(at) if at.isdigit() else 0
            threads[-1][1].append(Frame(frame["function"], frame["file"], number))
    return [(name, tuple(stack)) for name, stack in threads]
