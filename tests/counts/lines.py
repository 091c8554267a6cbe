"""Lines of code, without comments, docstrings and blank lines."""

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.counts.rooms import PACKAGE

# Programs beside the launcher, each of which has a house of its own: all else is counted.
APART = ("bench", "check", "train")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NO_CODE = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
)


def launcher_proper(package: Path = PACKAGE) -> list[Path]:
    """The files of the launcher."""
    apart = [package / name for name in APART]
    return [f for f in sorted(package.rglob("*.py")) if not any(map(f.is_relative_to, apart))]


def lines_of_code(files: Iterable[Path]) -> int:
    """How many lines of these files hold code."""
    return sum(_of_text(file.read_text()) for file in files)


def _of_text(text: str) -> int:
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - set(_docstrings(ast.parse(text))))


def _docstrings(tree: ast.Module) -> Iterator[int]:
    """The numbers of their lines."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            yield from range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)
