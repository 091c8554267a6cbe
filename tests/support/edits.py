"""Functions of the package with other code, for as long as a test wants it.

An edit is known by the function that it changes, and by an expression or a statement there; in its
place stands another one. A variable that was renamed elsewhere, or a line that has moved, breaks
none. Where the function or the expression has gone it cannot be made, which is an error: then the
table that has it is to follow.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple

Codes = list[tuple[FunctionType, CodeType]]  # functions, and what they are to do


class Edit(NamedTuple):
    """In this function of the package, this source becomes that."""

    function: str  # "run.front:_watch", "base.events:Loop.turn"
    before: str
    after: str


class Gone(Exception):
    """What is to be changed is not there any more."""


def function(path: str) -> FunctionType:
    """What an edit calls by this name. Raises Gone."""
    name, _, inner = path.partition(":")
    found: Any = importlib.import_module(f"spawnlaunch.{name}")
    for part in inner.split("."):
        found = vars(found).get(part)
        found = inspect.unwrap(found.fget if isinstance(found, property) else found)
    if not isinstance(found, FunctionType):
        raise Gone(f"there is no function {path}")
    return found


class _Replace(ast.NodeTransformer):
    """Each occurrence of one source by another."""

    def __init__(self, before: str, after: str) -> None:
        self.before = ast.unparse(ast.parse(before)).strip()
        self.after = ast.parse(after).body[0]
        self.count = 0

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, (ast.expr, ast.stmt)) and ast.unparse(node).strip() == self.before:
            self.count += 1
            if isinstance(node, ast.stmt):
                return ast.copy_location(self.after, node)
            if isinstance(self.after, ast.Expr):
                return ast.copy_location(self.after.value, node)
        return self.generic_visit(node)


def _changed(function: FunctionType, edits: list[Edit]) -> CodeType:
    made = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(made, ast.FunctionDef)
    for edit in edits:
        replace = _Replace(edit.before, edit.after)
        made.body = [replace.visit(statement) for statement in made.body]
        if not replace.count:
            raise Gone(f"{edit.function} has no {edit.before!r}")
    return compiled(function, made)


def compiled(function: FunctionType, made: ast.FunctionDef) -> CodeType:
    """The code of a function that is made anew; in a class, as it may call `super`."""
    made.decorator_list = []
    tree = ast.parse("from __future__ import annotations\nclass Made: pass")
    tree.body[1].body = [made]  # type: ignore[attr-defined]
    names: dict[str, Any] = {}
    source = ast.unparse(ast.fix_missing_locations(tree))
    exec(compile(source, inspect.getfile(function), "exec"), function.__globals__, names)
    code = vars(names["Made"])[made.name].__code__
    assert isinstance(code, CodeType)
    return code


def codes(edits: Iterable[Edit]) -> Codes:
    """The functions that they change, and what those do then. Raises Gone."""
    by_function: dict[str, list[Edit]] = {}
    for edit in edits:
        by_function.setdefault(edit.function, []).append(edit)
    found = {path: function(path) for path in by_function}
    return [(found[path], _changed(found[path], mine)) for path, mine in by_function.items()]


@contextmanager
def instead(codes: Codes) -> Iterator[None]:
    """These functions do this."""
    before = [(function, function.__code__) for function, _ in codes]
    try:
        for function, code in codes:
            function.__code__ = code
        yield
    finally:
        for function, code in before:
            function.__code__ = code
