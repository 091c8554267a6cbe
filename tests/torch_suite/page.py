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

PyTorch tests its launcher in `test/distributed/launcher` and `test/distributed/elastic`. Each test
there that asks for something that is seen from outside is restated in `tests/torch_suite/cases.py`:
the same flags, variables or functions, and what the test asks of them. It is run under torchrun
{torch}, which shows that the case asks for what torchrun does, and under spawnlaunch.
`python -m tests.torch_suite` runs all and writes this page; `make full` runs those of spawnlaunch
again, and fails where one does not come out as it stands here. Of {cases} cases {theirs} hold under
torchrun and {ours} under spawnlaunch; each one that does not hold here has its row in
[what differs](torchrun.md#what-differs).
Where a test meets by etcd, the case meets by c10d. Functions are called through
`tests/torch_suite/api.py`, which has torch's `elastic_launch`, `LaunchConfig` and
`ChildFailedError` over `spawnlaunch.launch`.
"""
COLUMNS = "| test | what it asks | torchrun | spawnlaunch |\n|---|---|---|---|"
OUTSIDE_HEAD = """
## Not restated

These ask for what no other launcher can have.

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
