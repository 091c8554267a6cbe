"""A torchrun user's command line does the same here, or differs as docs/torchrun.md says."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import pytest

from tests.dropin.around import tried
from tests.dropin.differences import DIFFERENCES, Context, Difference, Finding, expected, findings
from tests.dropin.launches import Warm
from tests.dropin.line import Line
from tests.dropin.lines import LINES, SAMPLE
from tests.support.launching import ROOT

PAGE = ROOT / "docs" / "torchrun.md"
AT_ONCE = 1 if version("torch").startswith("2.4.") else 2  # which gives all launches one port
pytestmark = pytest.mark.timeout(1200)  # all lines are typed before the first test


Seen = Callable[[Line], Context]


@pytest.fixture(scope="module")
def seen(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Seen]:
    """What comes of a line; those that are asked for are typed before, some at a time."""
    asked = [item.callspec.params["line"] for item in request.session.items
             if item.fspath == request.fspath and hasattr(item, "callspec")]  # fmt: skip
    base, warm, pool = tmp_path_factory.mktemp("dropin"), Warm(), ThreadPoolExecutor(AT_ONCE)
    found = {id(line): pool.submit(tried, line, base / str(id(line)), warm) for line in asked}
    yield lambda line: found[id(line)].result()
    pool.shutdown(cancel_futures=True)
    warm.end()


def check(context: Context) -> None:
    strange = [
        each for each in findings(context.theirs, context.ours) if not expected(each, context)
    ]
    told = "\n".join(f"{each.facet}:\n  torchrun     {each.theirs!r}\n  spawnlaunch  {each.ours!r}"
                     for each in strange)  # fmt: skip
    assert not strange, f"{context.line}\n{told}\n{context.theirs.stderr}\n{context.ours.stderr}"


@pytest.mark.parametrize("line", SAMPLE, ids=str)
def test_a_line_does_the_same(seen: Seen, line: Line) -> None:
    check(seen(line))


@pytest.mark.full
@pytest.mark.parametrize("line", LINES[len(SAMPLE) :], ids=str)
def test_every_line_does_the_same(seen: Seen, line: Line) -> None:
    check(seen(line))


def test_the_table_of_the_documentation_has_these_differences_and_no_others() -> None:
    table = PAGE.read_text().partition("\n## Differences\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| ([^|]+?) +\|", table, re.MULTILINE)[1:]  # but the head
    assert sorted(named) == sorted({row.name for row in DIFFERENCES})


def test_a_difference_that_no_row_knows_is_found() -> None:
    finding = Finding("environ RANK", "0", "1")
    assert expected(finding, None) is None  # type: ignore[arg-type]
    assert isinstance(DIFFERENCES[0], Difference)
