"""Keyword arguments as words of a command line, by the launcher's table of flags.

    max_restarts=1         --max-restarts=1
    oversubscribe=True     --oversubscribe
    ranks_filter=[0, 4]    --ranks-filter=0,4
    smt=False              --smt=off
    timeout=None           nothing

What a value may be, the flag's own reader says, as it does on the command line.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Container, Mapping, Set
from difflib import get_close_matches
from operator import index

from spawnlaunch import cli, errors
from spawnlaunch.flags import FLAGS, SPELLINGS, Flag, spelt

# Flags of a command line that mean nothing to a function, and what to do instead.
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


def words(flags: Mapping[str, object], function: object = None) -> list[str]:
    """The flags of a launcher that say the same. Raises UsageError for what is none, or cannot be.

    A name that is no flag may be meant for the function that is launched.

    >>> words({"nproc": 2, "max_restarts": 1, "oversubscribe": True, "timeout": None})
    ['--nproc=2', '--max-restarts=1', '--oversubscribe']
    """
    found = [_word(_flag(name, function), name, value) for name, value in flags.items()]
    return [word for word in found if word is not None]


def check(given: list[str], program: str) -> None:
    """Read the words as the launcher will, with a script behind them. Raises UsageError."""
    cli.parse([*given, program], os.environ, sys.executable)


def _flag(name: str, function: object) -> Flag:
    flag = spelt(f"--{name}") if name.isidentifier() else None
    if flag is None and callable(function) and name in _parameters(function):
        called = getattr(function, "__name__", "function")
        raise errors.UsageError(
            f"{name}= is a parameter of {called}, and no flag of the launcher; launch "
            f"functools.partial({called}, {name}=...)"
        )
    if flag is None:
        known = [flag.name for flag in FLAGS if flag.name not in NOT_HERE]
        spellings = [each for each in SPELLINGS if SPELLINGS[each].name in known]
        names = [each.strip("-").replace("-", "_") for each in spellings]
        meant = "".join(get_close_matches(name, names, n=1))
        said = f"did you mean {meant}?" if meant else "spawnlaunch --help lists the flags"
        raise errors.UsageError(
            f"{name}= is no flag of the launcher; {said} (keyword arguments of a function go into "
            "it with functools.partial)"
        )
    if flag.name in NOT_HERE:
        raise errors.UsageError(f"{name}= is not available here: {NOT_HERE[flag.name]}")
    return flag


def _parameters(function: Callable[..., object]) -> Container[str]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # of some functions that are written in C
        return ()


def _word(flag: Flag, name: str, value: object) -> str | None:
    """One word; None: there is nothing to say."""
    if value is None:
        return None
    if not flag.read:
        if not isinstance(value, bool):
            raise errors.UsageError(f"{name}={value!r} is neither True nor False; type one of them")
        return flag.name if value else None
    if not callable(flag.read) and isinstance(value, bool):
        value = next((text for text, meant in flag.read.items() if meant is value), value)
    text = _text(value)
    if text is None:
        kind = type(value).__name__
        raise errors.UsageError(
            f"{name}={value!r}: a {kind} cannot be a flag's value; type it as on the command line, "
            f"{name}='...' (spawnlaunch --help)"
        )
    return f"{flag.name}={text}"


def _text(value: object) -> str | None:
    """A value as it is typed; None: it cannot be typed."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value)
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".")
    if isinstance(value, Mapping):
        pairs = {_text(key): _text(each) for key, each in value.items()}
        return _joined(
            [None if None in pair else "=".join(map(str, pair)) for pair in pairs.items()]
        )
    if isinstance(value, (list, tuple, range, Set)):
        texts = map(_text, value)
        return _joined(sorted(texts, key=str) if isinstance(value, Set) else texts)
    try:
        return str(index(value))  # type: ignore[arg-type]
    except TypeError:
        return None


def _joined(texts: object) -> str | None:
    found = list(texts)  # type: ignore[call-overload]
    return None if None in found else ",".join(found)
