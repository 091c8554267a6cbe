"""What must hold in every schedule.

A property is a function of one of these files. It yields a verdict for each thing that it judges:
False where it holds, else words.
"""

from collections.abc import Callable, Iterator
from types import FunctionType

from tests.machine.play import Played
from tests.machine.properties import alone, ends, facts, grace, output, several, silence

OF_ANY = ends, grace, silence, output


def broken(played: Played) -> list[str]:
    """All that does not hold."""
    return [
        f"{name}: {words}" for name, found in verdicts(played).items() for words in found if words
    ]


def verdicts(played: Played) -> dict[str, list[facts.Verdict]]:
    """By property, what it has judged; nothing where such a launch is not its subject."""
    checks = OF_ONE if played.scenario.is_alone else OF_SEVERAL
    return {name: [*check(played)] for name, check in checks.items()}


def _properties(*files: object) -> dict[str, Callable[[Played], Iterator[facts.Verdict]]]:
    return {
        name: what
        for file in files
        for name, what in vars(file).items()
        if isinstance(what, FunctionType) and what.__module__ == file.__name__
        if not name.startswith("_")
    }


OF_ONE, OF_SEVERAL = _properties(*OF_ANY, alone), _properties(*OF_ANY, several)
