"""How hard functions are to follow: their complexity, their nesting, and what they import.

Complexity is one, and one more for each branch, loop, exception handler, case, assertion, boolean
operand beyond the first, conditional expression and comprehension. ruff's own count leaves out the
last three. A function within another counts by itself.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

COMPLEX = 12  # a function of this complexity is counted
DEEP = 3  # a function with a statement below more of these is counted

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WITHIN = (*FUNCTIONS, ast.ClassDef)
BRANCHES = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.Assert),
    *(ast.IfExp, ast.comprehension),
)


class Shape(NamedTuple):
    """A function in numbers."""

    complexity: int
    nesting: int
    imports: int
    file: Path
    name: str


def shapes(files: Iterable[Path]) -> list[Shape]:
    """All functions of these files."""
    return [
        Shape(_complexity(node), _nesting(node.body), _imports(node), file, node.name)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, FUNCTIONS)
    ]


def complex_functions(found: Iterable[Shape]) -> list[Shape]:
    """Those that are too complex, the worst first."""
    return sorted((each for each in found if each.complexity >= COMPLEX), reverse=True)


def nested_functions(found: Iterable[Shape]) -> list[Shape]:
    """Those whose statements are nested too deeply."""
    return [each for each in found if each.nesting > DEEP]


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, but not in one within it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, WITHIN):
            yield node
            yield from _own(node)


def _complexity(function: ast.AST) -> int:
    nodes = list(_own(function))
    operands = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + operands + sum(isinstance(node, BRANCHES) for node in nodes)


def _imports(function: ast.AST) -> int:
    return sum(isinstance(node, (ast.Import, ast.ImportFrom)) for node in _own(function))


def _nesting(statements: Sequence[ast.stmt]) -> int:
    """How many if, for, while, with, try and match stand around the deepest of the statements."""
    return max((_deepest(each) for each in statements if not isinstance(each, WITHIN)), default=0)


def _deepest(statement: ast.stmt) -> int:
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    blocks += [each.body for each in getattr(statement, "handlers", [])]
    blocks += [each.body for each in getattr(statement, "cases", [])]
    if not any(blocks):
        return 0
    inner = [_nesting(block) - _is_elif(statement, block) for block in blocks]
    return 1 + max(inner)


def _is_elif(statement: ast.stmt, block: Sequence[ast.stmt]) -> bool:
    """Whether the block is an `elif`, which is as deep as its `if`."""
    return (
        isinstance(statement, ast.If)
        and block is statement.orelse
        and [type(each) for each in block] == [ast.If]
    )
