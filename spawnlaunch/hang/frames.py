r"""Stacks of Python in text: those that faulthandler and py-spy write.

faulthandler (Modules/faulthandler.c, Python/traceback.c), the thread that took the signal last:

    Thread 0x00007fdb3ffdc6c0 (most recent call first):
      File "/home/me/train.py", line 24 in in_a_thread

    Current thread 0x00007fdb40a3fb80 (most recent call first):
      File "/home/me/train.py", line 38 in <module>

py-spy dump --full-filenames:

    Thread 16307 (idle): "MainThread"
        wait_for_ever (/home/me/train.py:19)
        <module> (/home/me/train.py:38)
"""

from __future__ import annotations

import re

from spawnlaunch.base import records

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


def main_stack(text: str) -> Stack:
    """The stack of the main thread; empty where the text has none."""
    named: Stack = ()
    found: list[Stack] = []
    for name, stack in _threads(text):
        if name == "MainThread":
            named = stack
        found.append(stack)
    own = (stack for stack in found if stack and stack[-1].function not in _OF_A_THREAD)
    return named or next(own, ()) or next(filter(None, reversed(found)), ())


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
