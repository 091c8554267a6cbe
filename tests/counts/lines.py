"""Lines of code, without comments, docstrings and blank lines."""

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.launching import PACKAGE, ROOT

# Programs beside the launcher, each counted by itself.
APART = {
    "bench": "measures what pinning is worth",
    "check": "measures what a rank has",
    "train": "the training loop, which runs under any launcher",
}
# What no local launch, no task and no launch of several nodes needs: why each is imported.
BESIDE = {
    **APART,
    "run/preload": "--preload",
    "hang": "--hang-timeout, --stack-on-usr2, top and --record",
    "witness": "inside workers: for --hang-timeout, top and --record",
    "explaining.py": "--explain",
    "binding/picture.py": "--explain: the node as text",
    "watch": "top, report, --record and --explain=svg",
    "top.py": "spawnlaunch top",
    "report.py": "spawnlaunch report",
    "scripts.py": "spawnlaunch scripts",
    "base/commands.py": "the command lines and pages of those programs, and the page of --help",
    "apart.py": "a launch in a program that goes on afterwards",
    "cli/programs.py": "the names of those programs as words of ours",
    "calling": "spawnlaunch.launch, called from Python",
    "api.py": "spawnlaunch.launch, called from Python",
    "cli/torchrun.py": "a name of torchrun's or another launcher's is typed or exported",
    "distributed_launch.py": "python -m spawnlaunch.distributed_launch",
    "cli/manual.py": "--help, --version and --completion",
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NO_CODE = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
)


def module(path: str) -> str:
    """`run/preload` is `spawnlaunch.run.preload.`, which the names of its modules begin with."""
    return f"{PACKAGE.name}.{path.removesuffix('.py').replace('/', '.')}."


def files(without: Iterable[str] = (), package: Path = PACKAGE) -> list[Path]:
    """The files of the package that are none of these, nor below them."""
    left_out = [package / name for name in without]
    return [f for f in sorted(package.rglob("*.py")) if not any(map(f.is_relative_to, left_out))]


def parts() -> dict[str, list[Path]]:
    """The files of each part that is counted. The core is a part of the launcher."""
    return {
        "launcher": files(APART),
        "core": files(BESIDE),
        "bench": sorted((PACKAGE / "bench").rglob("*.py")),
        "check": sorted((PACKAGE / "check").rglob("*.py")),
        "train": sorted((ROOT / "train").rglob("*.py")),
        "tests": sorted((ROOT / "tests").rglob("*.py")),
    }


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
