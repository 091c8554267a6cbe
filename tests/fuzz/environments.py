"""Names of tests.world.resolving under their former place, until nobody imports them from here."""

from tests.world.resolving import NAMES, resolve

__all__ = ["NAMES", "resolve"]
