"""The rules, noting which of their branches a schedule or a test of a single rule goes through."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tests.gang import test_rules
from tests.gang.mutants import NAMES, copied, source


def parsed(name: str) -> ast.Module:
    return ast.parse(source(name))


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Those of the module, without those within them."""
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def run_tests(modules: dict[str, ModuleType]) -> None:
    """The tests of single rules, with these."""
    real = {name: getattr(test_rules, name) for name in ("hub", "member")}
    try:
        for name in real:
            setattr(test_rules, name, modules[name])
        for name, test in vars(test_rules).items():
            if name.startswith("test_") and not name.startswith("test_causes"):
                run_all_cases(test)
    finally:
        for name, module in real.items():
            setattr(test_rules, name, module)


def run_all_cases(function: Callable[..., None]) -> None:
    """A test as pytest would call it, with each of its parameters."""
    cases: list[Any] = [()]
    for mark in getattr(function, "pytestmark", []):
        names, values = mark.args
        cases = [value if isinstance(names, tuple) else (value,) for value in values]
    for case in cases:
        function(*case)


class Marked:
    """The rules, which note which of their branches they go through."""

    def __init__(self) -> None:
        self.all: dict[str, str] = {}  # where a branch is, and how it begins
        self.reached: set[str] = set()
        sources = {name: self._marked(name) for name in NAMES}
        self.modules = copied(sources, _reached=self.reached.add)

    def _marked(self, name: str) -> ast.Module:
        tree = parsed(name)
        for function in functions(tree):
            for node in list(ast.walk(function)):
                for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
                    if isinstance(block, list) and block:
                        place = f"{name}:{block[0].lineno}"
                        self.all[place] = ast.unparse(block[0]).splitlines()[0]
                        block[:0] = ast.parse(f"_reached({place!r})").body
        return ast.fix_missing_locations(tree)

    def unreached(self) -> list[str]:
        return [f"{place}: {text}" for place, text in self.all.items() if place not in self.reached]
