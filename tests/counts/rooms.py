"""Which file of the package imports which, and which room is allowed to.

The rooms and their order are those of the table in docs/architecture.md.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.launching import ROOT

PACKAGE = ROOT / "spawnlaunch"
PAGE = ROOT / "docs" / "architecture.md"
# | 3 | `node/` | what is this machine? |     or     | 1 | `errors` `reading` | ... |
ROW = re.compile(r"^\| *(\d+) *\| ((?:`[\w/]+` ?)+)\|", re.MULTILINE)


class Arrow(NamedTuple):
    """A file that imports another, in words as `import` has them; `line` is where."""

    importer: str
    imported: str
    line: int
    is_at_once: bool  # not inside a function, and not for the type checker alone

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """The files of the package, by the names of their modules."""
    linked = (package / "train").rglob("*.py")  # into a directory that is a link
    return {_name(file, package): file for file in sorted({*package.rglob("*.py"), *linked})}


def _name(file: Path, package: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def arrows(package: Path = PACKAGE) -> list[Arrow]:
    """Every import, wherever in a file it stands; those of other packages too."""
    known = modules(package)
    found = set()
    for name, file in known.items():
        tree = ast.parse(file.read_text())
        late = set(map(id, _late(tree)))
        for node in ast.walk(tree):
            for imported in _imported(node, name, known):
                found.add(Arrow(name, imported, node.lineno, id(node) not in late))
    return sorted(found)


def _late(tree: ast.Module) -> Iterator[ast.AST]:
    """What is run when a function is called, or never."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from ast.walk(node)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for each in node.body:
                yield from ast.walk(each)


def _imported(node: ast.AST, importer: str, known: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = _absolute(node, importer, known[importer].stem == "__init__")
        for alias in node.names:
            inner = f"{module}.{alias.name}"
            yield inner if inner in known else module


def _absolute(node: ast.ImportFrom, importer: str, is_package: bool) -> str:
    """`from .data import Feed` in spawnlaunch.train.loop is from spawnlaunch.train.data."""
    if not node.level:
        return str(node.module)
    here = importer.split(".")
    above = here[: len(here) - node.level + is_package]
    return ".".join([*above, *filter(None, [node.module])])


def order(page: Path = PAGE) -> dict[str, int]:
    """The number of each room, by the name of its module or package below `spawnlaunch`."""
    found = {}
    for number, names in ROW.findall(page.read_text()):
        for name in re.findall(r"`([\w/]+)`", names):
            found[name.rstrip("/")] = int(number)
    return found


def room(module: str) -> str:
    """`spawnlaunch.world.ranks` is in `world`, `spawnlaunch.cli` is its own."""
    return [*module.split("."), "__init__"][1]


def is_ours(module: str) -> bool:
    """Whether it is of the package."""
    return module.split(".")[0] == "spawnlaunch"


def upwards(found: Sequence[Arrow]) -> list[Arrow]:
    """Those from a room to a later one, or from or to a file that is in none."""
    number = order()
    above = max(number.values()) + 1
    return [
        arrow
        for arrow in found
        if number.get(room(arrow.imported), above) > number.get(room(arrow.importer), -1)
    ]


def circles(found: Sequence[Arrow]) -> list[list[str]]:
    """Groups of files that import each other, directly or through others."""
    after: dict[str, set[str]] = {}
    for arrow in found:
        if arrow.importer != arrow.imported:
            after.setdefault(arrow.importer, set()).add(arrow.imported)
    reached = {name: _reached(name, after) for name in after}
    groups = {
        tuple(sorted(other for other in there if name in reached.get(other, ())))
        for name, there in reached.items()
        if name in there
    }
    return [list(group) for group in sorted(groups)]


def _reached(name: str, after: Mapping[str, set[str]]) -> set[str]:
    """What a file imports, and what that imports, and so on."""
    there: set[str] = set()
    ahead = {name}
    while ahead:
        ahead = set().union(*(after.get(each, ()) for each in ahead)) - there
        there |= ahead
    return there
