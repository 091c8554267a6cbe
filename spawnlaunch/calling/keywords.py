"""Keyword arguments as words of a command line, by the launcher's table of flags.

    max_restarts=1         --max-restarts=1
    oversubscribe=True     --oversubscribe
    ranks_filter=[0, 4]    --ranks-filter=0,4
    smt=False              --smt=off
    timeout=None           nothing

The flag's own reader checks the value, as it does on the command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from spawnlaunch.base import errors
from spawnlaunch.cli import parsing
from spawnlaunch.cli.flags import spelt

# Flags of a command line that mean nothing to a function, and the advice to take instead.
NOT_HERE = {
    "--help": "help(spawnlaunch.launch) is for a function",
    "--version": "spawnlaunch.__version__ has it",
    "--completion": "it is for a shell; type spawnlaunch --completion bash",
    "-m": "it is for modules; a function of a module is launched as any other",
    "--no-python": "it is for programs; call subprocess.run in the function",
    "--local-rank-arg": "it is for scripts; the function reads spawnlaunch.current_world()",
    "--debug": "it needs the terminal of a command; type spawnlaunch --debug RANK script.py",
    "--explain": "call spawnlaunch.explain_launch",
}


def words(flags: Mapping[str, object], *behind: str) -> list[str]:
    """The command line with the same meaning, and the words `behind` after it; `cli` has read it.

    Raises UsageError for a name that is no flag, or a value that the flag cannot have.
    """
    given = [word for name, value in flags.items() for word in _words(name, value)]
    parsing.parse([*given, *behind], os.environ, sys.executable)
    return [*given, *behind]


def _words(name: str, value: object) -> list[str]:
    typed = f"--{name.replace('_', '-')}"
    flag = spelt(typed)
    if flag is None and not name.isidentifier():
        raise errors.UsageError(f"{name!r} is no name of a flag; type max_restarts=1 for a flag")
    if flag and flag.name in NOT_HERE:
        raise errors.UsageError(f"{name}= is not available here: {NOT_HERE[flag.name]}")
    if isinstance(value, bool) and flag and flag.read and not callable(flag.read):
        value = next((text for text, meant in flag.read.items() if meant is value), value)
    if value is None or value is False:
        return []
    is_switch = value is True and not (flag and flag.read)
    return [typed] if is_switch else [f"{typed}={_text(name, value)}"]


def _text(name: str, value: object) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, (str, int, os.PathLike)):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".")
    if isinstance(value, (list, tuple, range)):
        return ",".join(_text(name, each) for each in value)
    kind = type(value).__name__
    raise errors.UsageError(
        f"{name}={value!r}: a {kind} cannot be a flag's value; type it as on the command line, "
        f"{name}='...' (spawnlaunch --help)"
    )
