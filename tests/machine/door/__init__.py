"""The simulated kernel in the place of `spawnlaunch.base.machine`: one method for each name there.

A method is what its call is on Linux, for the process that runs just now.
"""

from functools import partial
from typing import Any, NoReturn

from spawnlaunch.base import machine
from tests.machine.door.descriptors import Descriptors
from tests.machine.door.files import Files
from tests.machine.door.processes import Processes
from tests.machine.door.signals import Signals
from tests.machine.kernel import Kernel

OWN = frozenset({"install", "begin", "wait"})
# Names of the door that are made of others of it: they stay as they are.
MADE_OF_OTHERS = frozenset({"content", "die_with_parent", "name_now", "show_environment"})


def calls() -> frozenset[str]:
    """All that rooms may call of the door."""
    return frozenset(
        name
        for name, what in vars(machine).items()
        if callable(what) and not name.startswith("_") and what.__module__ != "collections.abc"
    )


def _not_simulated(name: str, *_: object, **__: object) -> NoReturn:
    raise AssertionError(f"machine.{name} is not simulated")


class Remembered:
    """`machine.remembered`: of whoever runs."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    @property
    def _own(self) -> dict[object, bool]:
        process = self._kernel.current
        return process.remembered if process else {}

    def __contains__(self, what: object) -> bool:
        return what in self._own

    def __getitem__(self, what: object) -> bool:
        return self._own[what]

    def __setitem__(self, what: object, is_so: bool) -> None:
        self._own[what] = is_so


class Door(Processes, Signals, Descriptors, Files):
    """All calls."""

    def install(self) -> dict[str, Any]:
        """Put all calls in the place of the door's; the result is what was there.

        One that is not simulated is an error: it would be made on the machine itself.
        """
        before = {name: getattr(machine, name) for name in (*calls(), "remembered")}
        for name in calls() - MADE_OF_OTHERS:
            machine.__dict__[name] = getattr(self, name, partial(_not_simulated, name))
        machine.__dict__["remembered"] = Remembered(self._kernel)
        return before
