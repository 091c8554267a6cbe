"""Every place in the launcher's source that words an error, found in its syntax trees.

A place is `raise ERROR(text)`, or `say([text])` of something that cannot be. Where the text is what
another function of ours returns, the places are that function's returns.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.launching import ROOT

SOURCE = ROOT / "spawnlaunch"
NO_LAUNCHER = (
    *("api.py", "bench", "calling", "check", "report.py", "scripts.py", "top.py", "train"),
)
ERRORS = {
    *("UsageError", "FlagsError", "ArgumentTypeError", "BindingError", "CpuSetError"),
    *("HostlistError", "TasksPerNodeError", "ValueError"),
}
WORDED = ("_error", "_number")  # functions that make an error of their third argument
SPOKEN = ("cannot ", "could not ", "error: ", "refused ")


class Site(NamedTuple):
    """A place that words an error, and what its lines look like."""

    where: str  # file:line
    pattern: str  # a regular expression: any text stands for what is put in

    def words(self, line: str) -> bool:
        return re.search(self.pattern, line, re.DOTALL) is not None


def sites() -> list[Site]:
    files = [
        file
        for file in sorted(SOURCE.rglob("*.py"))
        if file.relative_to(SOURCE).parts[0] not in NO_LAUNCHER
    ]
    trees = {file: ast.parse(file.read_text()) for file in files}
    functions: dict[str, list[tuple[Path, ast.FunctionDef]]] = {}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                functions.setdefault(node.name, []).append((file, node))
    places = set()
    for file, tree in trees.items():
        for node, text in _worded(tree):
            places |= set(_sites_of(file, node, text, functions))
        for text in _silences(tree):
            places |= set(_site(file, text, text))
    return sorted(places)


def _worded(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The calls that word an error, each with the expression of its text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = _name(node.func)
            if name in ERRORS:
                yield node, node.args[0]
            elif name in WORDED and len(node.args) > 2:
                yield node, _assigned(tree, node, node.args[2])
            elif name == "say" and isinstance(node.args[0], ast.List) and node.args[0].elts:
                text = node.args[0].elts[0]
                if any(word in _pattern(text) for word in map(re.escape, SPOKEN)):
                    yield node, text


def _silences(tree: ast.Module) -> Iterator[ast.expr]:
    """Why a resource manager has no answer: the beginning of an error."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "why_silent":
            for each in ast.walk(node):
                if isinstance(each, ast.Return) and isinstance(each.value, ast.JoinedStr):
                    yield each.value


def _assigned(tree: ast.Module, call: ast.Call, text: ast.expr) -> ast.expr:
    """Return the last value that a name was assigned above the call, else the expression."""
    above = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(text, ast.Name)
        and _name(node.targets[0]) == text.id
        and node.lineno < call.lineno
    ]
    return max(above, key=lambda node: node.lineno).value if above else text


def _sites_of(
    file: Path,
    node: ast.AST,
    text: ast.expr,
    functions: dict[str, list[tuple[Path, ast.FunctionDef]]],
) -> Iterator[Site]:
    called = _name(text.func) if isinstance(text, ast.Call) else ""
    here = [entry for entry in functions.get(called, []) if entry[0] == file]
    for where, function in here or functions.get(called, []):
        for each in ast.walk(function):
            if isinstance(each, ast.Return) and each.value is not None:
                yield from _site(where, each, each.value)
    if not functions.get(called):
        yield from _site(file, node, text)


def _site(file: Path, node: ast.AST, text: ast.expr) -> Iterator[Site]:
    pattern = _pattern(text)
    if re.search(r"[a-z]{2}", pattern.replace(".*", "")):  # else it repeats another error's text
        where = f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        yield Site(where, pattern)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _pattern(text: ast.expr) -> str:
    """A regular expression for all texts that an expression can be."""
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return re.escape(text.value.replace("\nhint: ", "; "))
    if isinstance(text, ast.JoinedStr):
        return "".join(map(_pattern, text.values))
    if isinstance(text, ast.BinOp):
        return _pattern(text.left) + _pattern(text.right)
    if isinstance(text, ast.IfExp):
        return f"(?:{_pattern(text.body)}|{_pattern(text.orelse)})"
    return ".*"
