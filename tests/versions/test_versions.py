"""docs/versions.md is of the rows that there are, the oldest are those allowed, and none fails."""

import sys

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.support.launching import ROOT
from tests.versions.page import HEAD, PAGE, rows_of_page
from tests.versions.rows import ROWS, TESTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_page_has_each_row_and_what_was_tried_did_not_fail() -> None:
    assert PAGE.read_text(encoding="utf-8").startswith(
        HEAD.format(tests=",\n".join(f"`{name}`" for name in TESTS))
    )
    rows = rows_of_page()
    assert [*rows] == [row.name for row in ROWS]
    tried = [cells for cells in rows.values() if not cells[1].startswith("not tried: ")]
    assert tried
    for cells in tried:
        assert int(cells[4]) > 0
        assert cells[5] == "0"


def test_the_oldest_row_is_what_the_package_allows() -> None:
    oldest, *_ = ROWS
    assert f">={oldest.python}" == PROJECT["requires-python"]
    for requirement in map(Requirement, PROJECT["dependencies"]):
        if requirement.name in oldest.packages:
            version = oldest.packages[requirement.name].removeprefix("==")
            assert version in requirement.specifier
            least = next(iter(requirement.specifier)).version
            assert version in SpecifierSet(f"=={least}.*")
