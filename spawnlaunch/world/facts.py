"""A fact is a value that knows where it came from, and which candidates it was preferred to."""

from __future__ import annotations

from spawnlaunch.errors import UsageError
from spawnlaunch.reading import MAX_DIGITS, excerpt, is_number
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeAlias

Environ: TypeAlias = "Mapping[str, str]"

MAX_PORT = 65535


class Lost(NamedTuple):
    """A candidate that was not taken."""

    value: Any
    source: str
    why: str


class Fact(NamedTuple):
    """A derived value: `source` is a variable, a flag, or a rule in words."""

    value: Any
    source: str
    lost: tuple[Lost, ...] = ()


def is_named(fact: Fact, environ: Environ) -> bool:
    """Whether somebody said it, by a flag or a variable, and no rule of ours.

    >>> is_named(Fact(29500, "MASTER_PORT"), {"MASTER_PORT": "29500"})
    True
    >>> is_named(Fact(20000, "computed from SLURM_JOB_ID=1"), {"SLURM_JOB_ID": "1"})
    False
    """
    return fact.source.startswith("--") or fact.source in environ


# A reader answers a question from the environment, or says None where the environment does not.
Reader: TypeAlias = "Callable[[Environ], Fact | None]"

UNKNOWN = Fact(None, "not exported")


def first(candidates: Iterable[Fact | None]) -> Fact | None:
    """The first candidate there is; the others are its lost ones.

    >>> first([None, Fact(4, "SLURM_STEP_NUM_TASKS"), Fact(8, "SLURM_NTASKS")])
    Fact(value=4, source='SLURM_STEP_NUM_TASKS', lost=(Lost(value=8, source='SLURM_NTASKS', why=...
    """
    there = [fact for fact in candidates if fact is not None]
    if not there:
        return None
    taken, *others = there
    lost = list(taken.lost)
    for other in others:
        if other.source != taken.source:
            lost.append(Lost(other.value, other.source, f"{taken.source} comes before it"))
        lost += other.lost
    return taken._replace(lost=tuple(lost))


def number(name: str, most: int = 10**MAX_DIGITS) -> Reader:
    """A reader of the whole number in the variable `name`; an empty one is no answer.

    It raises UsageError where anything else stands there: what a manager says is never guessed.
    """

    def read(environ: Environ) -> Fact | None:
        text = environ.get(name, "").strip()
        if not text:
            return None
        if is_number(text) and int(text) <= most:
            return Fact(int(text), name)
        what = "a port" if most == MAX_PORT else "a whole number"
        raise UsageError(f"{name}={excerpt(text)} is not {what}; type unset {name}, or mend it")

    return read


def port(name: str) -> Reader:
    """A reader of the port in the variable `name`, likewise; 0 is any free one."""
    return number(name, MAX_PORT)


def text(name: str) -> Reader:
    """A reader of the text in the variable `name`; an empty one is no answer."""

    def read(environ: Environ) -> Fact | None:
        return Fact(environ[name], name) if environ.get(name) else None

    return read
