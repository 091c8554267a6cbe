"""The examples in the documentation of these modules are true."""

import doctest
import importlib
import pkgutil

import pytest

from spawnlaunch import world

MODULES = [f"spawnlaunch.world.{info.name}" for info in pkgutil.iter_modules(world.__path__)]


@pytest.mark.parametrize("name", ["spawnlaunch.values", *MODULES])
def test_the_examples_are_true(name: str):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0
