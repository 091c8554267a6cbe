"""Names of tests.world.resolving under their former place, until nobody imports them from here."""

from tests.world.resolving import resolve
from tests.world.variables import NAMES

__all__ = ["NAMES", "resolve"]
