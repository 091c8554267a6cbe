"""PyTorch's own tests of its launcher, restated, hold here, or differ as docs/torchrun.md says."""

from pathlib import Path

import pytest

from tests.dropin.differences import DIFFERENCES
from tests.dropin.launches import SPAWNLAUNCH
from tests.support.matrix import mostly_full
from tests.torch_suite.cases import CASES
from tests.torch_suite.page import PAGE, expected, page
from tests.torch_suite.running import Case, holds

# A case is a tuple itself, which would be taken for several values.
ROWS = mostly_full([(case,) for case in CASES], 3)


@pytest.mark.parametrize(("case",), ROWS, ids=str)  # noqa: PT006
def test_a_case_comes_out_as_the_page_says(case: Case, tmp_path: Path) -> None:
    assert holds(case, SPAWNLAUNCH, None, tmp_path / "case") == (not case.differs)


def test_the_page_is_of_these_cases_and_all_that_does_not_differ_on_purpose_holds() -> None:
    """Its results are those of a run: one that has come out otherwise is another text."""
    assert PAGE.read_text(encoding="utf-8") == page(expected())


def test_what_differs_has_its_row_among_the_differences() -> None:
    assert {case.differs for case in CASES} - {""} <= {row.name for row in DIFFERENCES}
