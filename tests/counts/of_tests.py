"""What tests know of the code that nobody else may: private names, and the wording of sentences.

A test that touches a private name, or has a whole sentence by heart, breaks when the code is
written better. Sentences stand in the table of tests/messages; elsewhere a few words of one are
enough.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
PUBLIC = {"_exit", "_replace", "_asdict"}  # in spite of their names: Python's
PRIVATE = re.compile(r"_(?!_)\w+$")
IN_WORDS = re.compile(r"\bspawnlaunch(?:\.\w+)*\._(?!_)\w+")
WORD = re.compile(r"(?<!\S)[\"'(]?[A-Za-z][a-z'-]*[,.:;)\"']?(?!\S)")
NAMING = (ast.Attribute, ast.ImportFrom, ast.Call, ast.Constant)  # what _private looks at
LONG = 6  # words: a sentence


class Place(NamedTuple):
    """Where in the tests, and what."""

    where: str
    what: str


def private_names() -> list[Place]:
    """Private names of the package, which a test reads, sets, imports or names."""
    sources = [*_trees(ROOT / "spawnlaunch"), *_trees(ROOT / "train")]
    theirs = {name for _, tree in sources for node in ast.walk(tree) for name in _given(node)}
    return [
        Place(where, name)
        for where, node in _nodes()
        for name in _private(node)
        if name.rpartition(".")[2] in theirs - PUBLIC
    ]


def sentences() -> list[Place]:
    """Sentences that a test compares with what was said."""
    found = []
    for path, tree in _trees(TESTS):
        if path.parent.name != "messages":
            compared = {id(each): each for node in ast.walk(tree) for each in _compared(node)}
            for node in compared.values():
                if len(WORD.findall(_text(node))) >= LONG:
                    found.append(Place(f"{path.relative_to(TESTS)}:{node.lineno}", _text(node)))
    return found


@functools.cache
def _trees(top: Path) -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in sorted(top.rglob("*.py"))]


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    """All but the private names that a file gives to what is its own."""
    for path, tree in _trees(TESTS):
        where, nodes = str(path.relative_to(TESTS)), list(ast.walk(tree))
        own = {name for node in nodes for name in _given(node)}
        for node in nodes:
            if isinstance(node, NAMING) and getattr(node, "attr", "") not in own:
                yield f"{where}:{getattr(node, 'lineno', 0)}", node


def _given(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node):
        yield node.attr


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _private(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.Attribute):
        names = [node.attr]
    elif isinstance(node, ast.ImportFrom):
        names = [part for alias in node.names for part in alias.name.split(".")]
    elif isinstance(node, ast.Call) and "attr" in _called(node):  # setattr and the like
        names = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from IN_WORDS.findall(node.value)
    yield from (name for name in names if PRIVATE.match(name))


def _called(node: ast.Call) -> str:
    func = node.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _compared(node: ast.AST) -> Iterator[ast.expr]:
    """The words of a comparison, and those of `match=` and `startswith`."""
    parts: list[ast.AST] = []
    if isinstance(node, ast.Compare):
        parts = [node]
    elif isinstance(node, ast.Call):
        parts = [keyword.value for keyword in node.keywords if keyword.arg == "match"]
        if getattr(node.func, "attr", "") in ("startswith", "endswith", "index", "count"):
            parts += node.args
    for part in parts:
        inner = {id(v) for f in ast.walk(part) if isinstance(f, ast.JoinedStr) for v in f.values}
        for each in ast.walk(part):
            if isinstance(each, (ast.Constant, ast.JoinedStr)) and id(each) not in inner:
                yield each


def _text(node: ast.expr) -> str:
    """A string, with a blank for what is put in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) for value in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "0"
