"""docs/torch-suite.md, from the cases and from what they came to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.launching import ROOT
from tests.torch_suite.cases import CASES, OUTSIDE

PAGE = ROOT / "docs" / "torch-suite.md"
Results = list[tuple[bool, bool]]  # by case: it holds under torchrun, and under spawnlaunch
HEAD = """\
# PyTorch's own tests of torchrun

For those who ask whether spawnlaunch does what torchrun's own tests require. Of {cases} cases
{theirs} hold under torchrun and {ours} under spawnlaunch. Each case that does not hold under
spawnlaunch has a row in [differences](torchrun.md#differences).

PyTorch tests its launcher in `test/distributed/launcher` and `test/distributed/elastic`. Many of
these tests require something that is visible from outside. `tests/torch_suite/cases.py` restates
each of these tests as a case, with the same flags, variables or functions and the same
requirements. Each case runs under torchrun {torch} and under spawnlaunch. The run under torchrun
shows that the case requires what torchrun does.

`python -m tests.torch_suite` runs all cases and writes this page. `make full` runs the cases under
spawnlaunch again, and fails if the result of a case differs from this page.

Where a test uses etcd, the case uses c10d. The cases call functions through
`tests/torch_suite/api.py`, which has torch's `elastic_launch`, `LaunchConfig` and
`ChildFailedError` on top of `spawnlaunch.launch`.
"""
COLUMNS = "| test | what it asks | torchrun | spawnlaunch |\n|---|---|---|---|"
OUTSIDE_HEAD = """
## Not restated

These tests require parts of torchrun itself, which no other launcher can have.

| file | tests | why |
|---|---|---|"""


def expected() -> Results:
    """All hold, but for those that differ here on purpose."""
    return [(True, not case.differs) for case in CASES]


def page(results: Results) -> str:
    return "\n".join(_page(results)) + "\n"


def _page(results: Results) -> Iterator[str]:
    found = re.search(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert found
    theirs = sum(held for case, (held, _) in zip(CASES, results, strict=True) if not case.unsteady)
    ours = sum(held for _, held in results)
    yield HEAD.format(torch=found[1], cases=len(CASES), theirs=theirs, ours=ours)
    file = ""
    for case, result in zip(CASES, results, strict=True):
        if case.file != file:
            file = case.file
            yield f"\n## {file}\n\n{COLUMNS}"
        words = ["holds" if each else "**does not hold**" for each in result]
        if case.unsteady:
            words[0] = f"not each time: {case.unsteady}"
        if case.differs and not result[1]:
            words[1] = f"differs: {case.differs}"
        yield f"| `{case.test}` | {case.asks} | {words[0]} | {words[1]} |"
    yield OUTSIDE_HEAD
    for file, tests, why in OUTSIDE:
        yield f"| `{file}` | {tests} | {why} |"
