"""The examples in the documentation of these modules are true."""

import doctest
import importlib
import pkgutil

import pytest

from spawnlaunch import world

MODULES = [info.name for info in pkgutil.walk_packages(world.__path__, "spawnlaunch.world.")]


@pytest.mark.parametrize("name", ["spawnlaunch.cli.values", *MODULES])
def test_the_examples_are_true(name: str):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0
