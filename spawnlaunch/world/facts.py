"""A fact is a value that knows where it came from, and which candidates it was preferred to."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

Environ = Mapping[str, str]


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


# A reader answers a question from the environment, or says None where the environment does not.
Reader = Callable[[Environ], Fact | None]

UNKNOWN = Fact(None, "not exported")


def first(candidates: Iterable[Fact | None], why: str = "comes later in the order") -> Fact | None:
    """The first candidate there is; the others are its lost ones.

    >>> first([None, Fact(4, "SLURM_STEP_NUM_TASKS"), Fact(8, "SLURM_NTASKS")])
    Fact(value=4, source='SLURM_STEP_NUM_TASKS', lost=(Lost(value=8, source='SLURM_NTASKS', why=...
    """
    there = [fact for fact in candidates if fact is not None]
    if not there:
        return None
    taken, *others = there
    lost = tuple(Lost(fact.value, fact.source, why) for fact in others)
    return taken._replace(lost=taken.lost + lost)


def number(name: str) -> Reader:
    """A reader of the whole number in the variable `name`; anything else there is no answer."""

    def read(environ: Environ) -> Fact | None:
        text = environ.get(name, "").strip()
        return Fact(int(text), name) if text.isascii() and text.isdigit() else None

    return read


def text(name: str) -> Reader:
    """A reader of the text in the variable `name`; an empty one is no answer."""

    def read(environ: Environ) -> Fact | None:
        return Fact(environ[name], name) if environ.get(name) else None

    return read
