"""Run the cases under both launchers, and write docs/torch-suite.md from what they came to.

python -m tests.torch_suite            all
python -m tests.torch_suite WORD ...   those with one of these words again, after one of all
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.dropin.launches import SPAWNLAUNCH, TORCHRUN, Warm
from tests.support.launching import ROOT
from tests.torch_suite.cases import CASES
from tests.torch_suite.page import PAGE, page
from tests.torch_suite.running import Case, holds

AT_ONCE = 4
FOUND = ROOT / "build" / "torch_suite.json"  # by case: what it came to when it was last run


def run(cases: list[Case]) -> Iterator[tuple[Case, tuple[bool, bool]]]:
    """Under which launchers each of them holds."""
    with tempfile.TemporaryDirectory(prefix="suite-") as top, ThreadPoolExecutor(AT_ONCE) as pool:
        warm = Warm()

        def both(number: int) -> tuple[bool, bool]:
            place = Path(top) / str(number)
            theirs = holds(cases[number], TORCHRUN, warm, place / TORCHRUN)
            return theirs, holds(cases[number], SPAWNLAUNCH, None, place / SPAWNLAUNCH)

        yield from zip(cases, pool.map(both, range(len(cases))), strict=True)
        warm.end()


def main(words: list[str]) -> None:
    found = json.loads(FOUND.read_text()) if words else {}
    FOUND.parent.mkdir(exist_ok=True)
    for case, result in run([c for c in CASES if not words or any(w in str(c) for w in words)]):
        print(*result, case, flush=True)
        found[str(case)] = result
        FOUND.write_text(json.dumps(found))
    PAGE.write_text(page([found[str(case)] for case in CASES]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
