"""Every place that calls CUDA or NCCL, and the checks that reach it.

    python -m tests.gpu.calls

A place is a function that names torch.cuda, one of its backends, or a device module, or that does
something else where the device is not the CPU. The table says which checks reach it, by what they
declare; that they truly enter it is recorded where they run (see `check`).
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.gpu import all_checks
from tests.gpu.check import Check
from tests.gpu.machine import ROOT

FOLDERS = ("spawnlaunch", "train")
# Names that stand for what a device's library does; below torch they are modules.
MODULES = ("cuda", "xpu", "hpu", "npu")
# What a device module has, and its events, whatever they are called on.
CALLED = ("device_count", "synchronize", "elapsed_time")


class Place(NamedTuple):
    """A function that calls a device's library."""

    name: str  # "train/device.py:peak_bytes"
    line: int
    text: str


def places() -> list[Place]:
    """All of them, each function once, in the order of their files."""
    found: dict[str, Place] = {}
    for file in _files():
        lines = file.read_text().splitlines()
        for function, node in functions(ast.parse(file.read_text())):
            if any(is_call(child) for child in own(node)):
                name = f"{file.relative_to(ROOT)}:{function}"
                first = next(child for child in own(node) if is_call(child))
                line = getattr(first, "lineno", 0)
                found.setdefault(name, Place(name, line, lines[line - 1].strip()))
    return list(found.values())


def reached_by(place: Place) -> list[Check]:
    """The checks that say that they enter it."""
    return [check for check in all_checks() if place.name in check.reaches]


def _files() -> list[Path]:
    files = [f for folder in FOLDERS for f in (ROOT / folder).rglob("*.py")]
    # spawnlaunch/train is a link to train.
    return sorted({f.resolve() for f in files})


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            if isinstance(child, ast.FunctionDef):
                yield name, child
            yield from functions(child, f"{name}.")
        else:
            yield from functions(child, prefix)


def own(function: ast.AST) -> Iterator[ast.AST]:
    """What is in it and not in a function within it, in the order of the text."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            continue
        yield child
        yield from own(child)


def is_call(node: ast.AST) -> bool:
    """torch.cuda.anything(...), device_module(...), init_process_group("nccl")."""
    if not isinstance(node, ast.Call):
        return False
    names = _chain(node.func)
    if names[:1] == ["torch"] and len(names) > 2 and names[1] in MODULES:
        return True
    if names and names[-1] in CALLED:
        return True
    words = [arg.value for arg in ast.walk(node) if isinstance(arg, ast.Constant)]
    return (
        bool(names) and names[-1] == "init_process_group" and ("nccl" in words or _looks_up(node))
    )


def _looks_up(node: ast.Call) -> bool:
    return any(isinstance(arg, ast.Subscript) for arg in node.args)


def _chain(node: ast.AST) -> list[str]:
    """The names of a.b.c."""
    if isinstance(node, ast.Attribute):
        return [*_chain(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else []


def main() -> int:
    """Print the table; 1 if a place is reached by no check."""
    alone = 0
    for place in places():
        checks = [check.name for check in reached_by(place)]
        alone += not checks
        print(f"{place.name}\n    {place.text}\n    {', '.join(checks) or 'NO CHECK'}")
    print(f"\n{len(places())} places, {alone} without a check")
    return 1 if alone else 0


if __name__ == "__main__":
    sys.exit(main())
