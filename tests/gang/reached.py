"""The rules, noting which of their branches a schedule or a test of a single rule goes through."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spawnlaunch import failures
from spawnlaunch.gang import hub, member, phases, roster, rules
from tests.gang import test_rules
from tests.support import edits

RULES = (failures, rules, roster, phases, hub, member)
NOTE = "note_branch"  # what a marked function calls
# They have run as the modules were imported; and a class that says what is known has its own.
NOT_MARKED = ("return happens", "raise NotImplementedError")


def run_tests() -> None:
    """The tests of single rules."""
    for name, test in vars(test_rules).items():
        if name.startswith("test_") and not name.startswith("test_causes"):
            run_all_cases(test)


def run_all_cases(function: Callable[..., None]) -> None:
    """A test as pytest would call it, with each of its parameters."""
    cases: list[Any] = [()]
    for mark in getattr(function, "pytestmark", []):
        names, values = mark.args
        values = [getattr(value, "values", value) for value in values]  # of pytest.param
        cases = [value if isinstance(names, tuple) else (value,) for value in values]
    for case in cases:
        function(*case)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Those of the module and of its classes, without those within them."""
    for node in tree.body:
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef):
                yield f"{node.name}.{each.name}" if each is not node else each.name, each


class Marked:
    """The rules, which can note which of their branches they go through."""

    def __init__(self) -> None:
        self.all: dict[str, str] = {}  # where a branch is, and how it begins
        self.reached: set[str] = set()
        self._codes: edits.Codes = []
        for module in RULES:
            name = module.__name__.removeprefix("spawnlaunch.")
            for inner, made in functions(ast.parse(inspect.getsource(module))):
                if ast.unparse(made.body[-1]) not in NOT_MARKED:
                    self._mark(name, made)
                    function = edits.function(f"{name}:{inner}")
                    self._codes.append((function, edits.compiled(function, made)))

    def _mark(self, name: str, made: ast.FunctionDef) -> None:
        for node in list(ast.walk(made)):
            for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
                if isinstance(block, list) and block:
                    place = f"{name}:{block[0].lineno}"
                    self.all[place] = ast.unparse(block[0]).splitlines()[0]
                    block[:0] = ast.parse(f"{NOTE}({place!r})").body

    @contextmanager
    def noting(self) -> Iterator[None]:
        for module in RULES:
            setattr(module, NOTE, self.reached.add)
        with edits.instead(self._codes):
            yield
        for module in RULES:
            delattr(module, NOTE)

    def unreached(self) -> list[str]:
        return [f"{place}: {text}" for place, text in self.all.items() if place not in self.reached]
