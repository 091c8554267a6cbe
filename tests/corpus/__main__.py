"""Start the programs under both launchers, and compare what comes of them.

python -m tests.corpus                  all; a line for each
python -m tests.corpus --only NAME ...  these, after all have once been run
python -m tests.corpus --write          docs/corpus.md is written as well
python -m tests.corpus --faults         programs that can be started again, with somebody killed
python -m tests.corpus --faults --seed S --round I   a round once more

The status is 1 where one differs without a reason in the table, or a fault has done more here.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.corpus import faults
from tests.corpus.page import PAGE, Result, is_expected, page, result
from tests.corpus.running import come_both
from tests.corpus.table import PROGRAMS, Program
from tests.support.launching import ROOT, heed_signals

FOUND = ROOT / "build" / "corpus.json"  # by program: what it came to when it was last run


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.corpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [each.name for each in PROGRAMS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--round", type=int, help="this one alone")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--nodes", type=int, choices=(1, 2), help="else drawn for each round")
    options = parser.parse_args()
    heed_signals()
    if not options.faults:
        return compare(options.only, options.write)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    numbers = range(options.rounds) if options.round is None else [options.round]
    return disturb(seed, numbers, options.nodes)


def compare(only: list[str] | None, write: bool) -> int:
    found = json.loads(FOUND.read_text()) if only and FOUND.exists() else {}
    FOUND.parent.mkdir(exist_ok=True)
    wrong = 0
    for program in PROGRAMS:
        if not only or program.name in only:
            found[program.name] = of_both(program)
            wrong += not is_expected(program, found[program.name])
            FOUND.write_text(json.dumps(found))
    if write:
        PAGE.write_text(page(found), encoding="utf-8")
    print(f"{wrong} differ without a reason")
    return 1 if wrong else 0


def of_both(program: Program) -> Result:
    """What comes of it under both, and a line that says so."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as top:
        came = come_both(program, Path(top))
    found = result(*came)
    word = "same" if not found["differ"] else "differs" if is_expected(program, found) else "WRONG"
    print(f"{word:8} {program.name} {json.dumps(found)}", flush=True)
    if word == "WRONG":
        for name in found["differ"]:
            print(*(f"  {name}: {getattr(each, name)}" for each in came), sep="\n", flush=True)
    return found


def disturb(seed: int, numbers: Iterable[int], nodes: int | None) -> int:
    """Play these rounds, each of which depends on the seed and its number only."""
    print(f"seed {seed}", flush=True)
    failures = 0
    for number in numbers:
        drawn = faults.draw(random.Random(f"{seed}:{number}"), nodes)
        words, wrong = faults.judged(drawn)
        print(f"round {number}: {drawn}: {words}", flush=True)
        if wrong:
            failures += 1
            print(f"  WRONG: {wrong}", flush=True)
    print(f"seed {seed}: {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
