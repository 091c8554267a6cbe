"""Our own finder gives the modules that Python's gives, with fewer look-ups."""

import importlib.util
import pkgutil
from importlib.machinery import PathFinder
from pathlib import Path

import spawnlaunch
from spawnlaunch.base.finder import Finder


def spec_by_python(name: str):
    parent = importlib.util.find_spec(name.rpartition(".")[0])
    return PathFinder.find_spec(name, parent.submodule_search_locations)


def test_a_module_is_the_one_that_python_finds():
    names = [module.name for module in pkgutil.walk_packages(spawnlaunch.__path__, "spawnlaunch.")]
    assert names
    for name in names:
        ours, theirs = Finder.find_spec(name), spec_by_python(name)
        for said in ("name", "origin", "cached", "has_location", "submodule_search_locations"):
            assert getattr(ours, said) == getattr(theirs, said), name
        assert ours.loader.get_data(ours.origin) == Path(ours.origin).read_bytes(), name
        code, expected = (spec.loader.get_code(name) for spec in (ours, theirs))
        assert code == expected, name
        assert code.co_filename == expected.co_filename, name
