"""All mutants of a module, and the module with one of them."""

from __future__ import annotations

import ast
import copy
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# Mutants that change nothing that anybody sees, and why: they are not tried. A key is a file, a
# function and the change of it, which stays true where lines move.
EQUIVALENT: dict[str, str] = json.loads(Path(__file__).with_name("equivalent.json").read_text())
OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Mutant(NamedTuple):
    """The change number `place` of a file."""

    path: str
    place: int
    line: int
    function: str  # around it: `Class.method`; "": it is made when the module is imported
    begins: int  # the line of the `def` that has it, within that one too, or of its first decorator
    change: str  # `a < b -> a <= b`; #2 at its end: the second such of the function

    @property
    def key(self) -> str:
        """What stays as it is where lines move."""
        return f"{self.path} {self.function or 'module'}: {self.change}"


class _Place(NamedTuple):
    node: ast.AST
    function: str
    begins: int


def _places(node: ast.AST, name: str = "", inside: tuple[str, int] = ("", 0)) -> Iterator[_Place]:
    """Nodes that can be changed; `inside` is a function, and where the innermost one begins."""
    for field, value in ast.iter_fields(node):
        within, called = inside, name
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            called = f"{name}.{node.name}" if name else node.name
            if field == "body" and isinstance(node, FUNCTIONS):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                within = inside[0] or called, first
        if field in ("annotation", "returns") or getattr(node, "arg", "") == "strict":
            continue  # types, and what only guards against ourselves: zip(..., strict=True)
        for child in value if isinstance(value, list) else [value]:
            if _is_for_types(child):
                continue
            if isinstance(child, ast.AST):
                if _can_change(child):
                    yield _Place(child, *within)
                yield from _places(child, called, within)


def _is_for_types(node: object) -> bool:
    """`TYPE_CHECKING = False`, and what is imported where it is true."""
    name = node.test if isinstance(node, ast.If) else getattr(node, "targets", [None])[0]
    return isinstance(name, ast.Name) and name.id == "TYPE_CHECKING"


def _can_change(node: ast.AST) -> bool:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return not _is_turned_round_by_itself(test)
        case ast.Compare() | ast.BoolOp():
            return True
        case ast.BinOp():
            return type(node.op) in OTHER
        case ast.UnaryOp():
            return isinstance(node.op, ast.Not)
        case ast.Constant():
            return type(node.value) in (int, float, bool)
        case ast.Expr():
            return not isinstance(node.value, (ast.Constant, ast.Yield, ast.YieldFrom))
        case ast.Assign():  # a name that is used later: to drop it is found at once
            return not all(isinstance(target, ast.Name) for target in node.targets)
        case ast.AugAssign():
            return True
    return False


def _is_turned_round_by_itself(test: ast.expr) -> bool:
    """Whether a change of the condition alone is the same as to turn round what it decides."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return isinstance(test.ops[0], (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot))
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


@cache
def _text(path: str) -> str:
    """As it was first read: somebody may write to the file while mutants of it are tried."""
    return (ROOT / path).read_text()


def mutants(path: str) -> list[Mutant]:
    """All of a file's; `path` is from the top of the tree."""
    tree = ast.parse(_text(path))
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for place, (node, function, begins) in enumerate(_places(tree)):
        change = _described(node)
        seen[function, change] += 1
        nth = seen[function, change]
        change += f" #{nth}" if nth > 1 else ""
        found.append(Mutant(path, place, node.lineno, function, begins, change))  # type: ignore[attr-defined]
    return found


def _described(node: ast.AST) -> str:
    match node:
        case ast.If() | ast.While():
            return f"{type(node).__name__.lower()} not ({ast.unparse(node.test)})"
        case ast.Expr() | ast.Assign() | ast.AugAssign():
            return f"dropped: {_short(ast.unparse(node))}"
    before = _short(ast.unparse(node))
    after = copy.deepcopy(node)
    if isinstance(after, ast.UnaryOp):
        after = after.operand
    else:
        _alter(after)
    return f"{before} -> {_short(ast.unparse(after))}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:157]}..."


def mutated(mutant: Mutant) -> ast.Module:
    """The module with the change; what is not changed keeps its lines."""
    tree = ast.parse(_text(mutant.path))
    node = next(each.node for n, each in enumerate(_places(tree)) if n == mutant.place)
    match node:
        case ast.UnaryOp():
            _replace(tree, node, node.operand)
        case ast.Expr() | ast.Assign() | ast.AugAssign():
            _replace(tree, node, ast.copy_location(ast.Pass(), node))
        case _:
            _alter(node)
    return ast.fix_missing_locations(tree)


def _alter(node: ast.AST) -> None:
    match node:
        case ast.Compare():
            node.ops[0] = OTHER[type(node.ops[0])]()
        case ast.BoolOp() | ast.BinOp():
            node.op = OTHER[type(node.op)]()
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant():
            node.value = node.value + 1
        case ast.If() | ast.While() | ast.IfExp():
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(each is old for each in value):
                value[[each is old for each in value].index(True)] = new
