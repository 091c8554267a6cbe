"""The examples in docstrings are true."""

import doctest
import importlib

import pytest

from tests.support.launching import ROOT

FILES = (file for room in ("spawnlaunch", "benchmarks") for file in (ROOT / room).rglob("*.py"))
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for file in sorted(FILES)
    if ">>> " in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name: str) -> None:
    module = importlib.import_module(name)
    done = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert done.attempted
    assert done.failed == 0
