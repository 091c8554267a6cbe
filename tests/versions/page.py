"""docs/versions.md, from what the rows came to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.launching import ROOT
from tests.versions.rows import ROWS, TESTS

PAGE = ROOT / "docs" / "versions.md"
HEAD = """\
# Versions

For those who ask which versions of Python, torch, numpy and psutil work. `make matrix` writes this
page. It runs tests of launching, of torchrun's command lines and of training, with the oldest
versions that `pyproject.toml` allows and with the newest versions that pip finds. Each row has its
own virtual environment. The tests are those of `make test` in
{tests}.
A test is skipped if a package that it needs is missing.

| row | Python | torch | numpy | psutil | passed | failed | skipped |
|---|---|---|---|---|---|---|---|"""


class Result(NamedTuple):
    """What a row came to."""

    versions: list[str] | tuple[()] = ()  # of Python, torch, numpy and psutil
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    missing: str = ""  # why it could not be tried


def page(results: list[Result]) -> str:
    return "\n".join(_page(results)) + "\n"


def _page(results: list[Result]) -> Iterator[str]:
    yield HEAD.format(tests=",\n".join(f"`{name}`" for name in TESTS))
    for row, result in zip(ROWS, results, strict=True):
        cells = [*result.versions, result.passed, result.failed, result.skipped]
        if result.missing:
            cells = [row.python, f"not tried: {result.missing}", *[""] * 5]
        yield f"| {row.name} | {' | '.join(map(str, cells))} |"


def rows_of_page() -> dict[str, list[str]]:
    """The cells of the page's rows, by the rows' names."""
    lines = re.findall(r"^\| (\S+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split(" | ")] for name, cells in lines[1:]}
