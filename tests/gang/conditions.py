"""Every condition in the rules, made always and never true; and which of their lines were reached.

A condition without which nothing changes is not needed, or is not tested.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from tests.gang import test_rules
from tests.gang.mutants import NAMES, copied, source
from tests.gang.simulation import Simulation


class Condition(NamedTuple):
    """A place in the rules, and what stands there instead."""

    module: str
    function: str
    text: str
    number: int  # of the places with this text in the function
    value: bool

    def __str__(self) -> str:
        again = f" #{self.number}" if self.number else ""
        return f"{self.module}.{self.function}: {self.text}{again} is {self.value}"


def parsed(name: str) -> ast.Module:
    return ast.parse(source(name))


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Those of the module, without those within them."""
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def places(function: ast.FunctionDef) -> Iterator[tuple[Any, str, int | None, tuple[bool, ...]]]:
    """Where a condition is: owner, field, index; and by what it may be replaced.

    A part of an `and` that is always true is as if it were not there.
    """
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp):
            yield node, "test", None, (True, False)
        elif isinstance(node, ast.match_case) and node.guard:
            yield node, "guard", None, (True, False)
        elif isinstance(node, ast.comprehension):
            for n in range(len(node.ifs)):
                yield node, "ifs", n, (True,)
        elif isinstance(node, ast.BoolOp):
            for n in range(len(node.values)):
                yield node, "values", n, (isinstance(node.op, ast.And),)


def conditions(*modules: str) -> Iterator[tuple[Condition, ast.Module]]:
    """All of them, with the module that has the fault."""
    for name in modules or NAMES:
        tree = parsed(name)
        for index, function in enumerate(functions(tree)):
            seen: list[str] = []
            for number, (owner, field, at, values) in enumerate(places(function)):
                text = ast.unparse(
                    getattr(owner, field) if at is None else getattr(owner, field)[at]
                )
                for value in values:
                    condition = Condition(name, function.name, text, seen.count(text), value)
                    yield condition, changed(tree, index, number, value)
                seen.append(text)


def changed(tree: ast.Module, index: int, number: int, value: bool) -> ast.Module:
    tree = copy.deepcopy(tree)
    owner, field, at, _ = list(places(functions(tree)[index]))[number]
    constant = ast.Constant(value)
    if at is None:
        setattr(owner, field, constant)
    else:
        getattr(owner, field)[at] = constant
    return ast.fix_missing_locations(tree)


def is_found(module: str, tree: ast.Module, seeds: list[int]) -> str | None:
    """What finds a fault: a test of a rule alone, or a seed, which is tried first from now on."""
    modules = copied({module: tree})
    try:
        run_tests(modules)
    except Exception as error:
        return str(error) or type(error).__name__
    for place, seed in enumerate(seeds):
        try:
            Simulation(seed, modules["hub"], modules["member"]).run()
        except Exception:
            seeds.insert(0, seeds.pop(place))
            return f"seed {seed}"
    return None


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


# Those that may as well be otherwise, and why.
ALIKE = {"verdict.cause: failure is not None is True": "a failure's cause has a failure; for types"}


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
