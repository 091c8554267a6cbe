"""Play generated launches, print which are right, and put the table into docs/watching.md.

python -m tests.culprit [--seeds N] [--from SEED] [--write]
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec

from benchmarks.report import machine
from docs.generate import with_section
from tests.culprit.launches import CLIENTS, NEEDS, case, play, score
from tests.support.launching import ROOT

PAGE = ROOT / "docs" / "watching.md"
RANKS, LINES = 0.98, 0.95  # that are right, at least


def main() -> int:
    """1 where too few are right; clients whose libraries are missing are named, and left out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=40, metavar="N", help="default: 40")
    parser.add_argument("--from", type=int, default=0, metavar="SEED", dest="first")
    parser.add_argument("--write", action="store_true", help=f"into docs/{PAGE.name} too")
    options = parser.parse_args()
    missing = sorted(name for name, needs in NEEDS.items() if find_spec(needs) is None)
    seeds = range(options.first, options.first + options.seeds)
    cases = [one for one in map(case, seeds) if one.client not in missing]
    loads, counted = [os.getloadavg()[0]], Counter[tuple[str, str]]()
    for one in cases:
        found = play(one)
        got = score(one, found)
        is_right = got.rank and got.line is not False
        print(one, "right" if is_right else f"WRONG: {got} {found}", flush=True)
        loads.append(os.getloadavg()[0])
        counted[one.client, "launches"] += 1
        counted[one.client, "rank"] += got.rank
        counted[one.client, "lines"] += got.line is not None
        counted[one.client, "line"] += got.line is True
    text = "\n".join([*_table(counted), "", _how(options.first, len(cases), missing, loads)])
    print(text)
    if options.write:
        PAGE.write_text(with_section(PAGE.read_text(), "culprit", text))
    total = Counter[str]()
    for (_, what), number in counted.items():
        total[what] += number
    enough = total["rank"] >= RANKS * total["launches"] and total["line"] >= LINES * total["lines"]
    return int(not enough)


def _table(counted: Counter[tuple[str, str]]) -> Iterator[str]:
    yield "| script | launches | right ranks, or nobody | right line |"
    yield "|---|---|---|---|"
    for client, title in CLIENTS.items():
        if counted[client, "launches"]:
            launches, rank = counted[client, "launches"], counted[client, "rank"]
            line = f"{counted[client, 'line']} of {counted[client, 'lines']}"
            yield f"| {title} | {launches} | {rank} | {line} |"


def _how(first: int, count: int, missing: list[str], loads: list[float]) -> str:
    without = f", without {', '.join(missing)} (not installed)" if missing else ""
    load = f"load {min(loads):.0f} to {max(loads):.0f}"
    return (
        f"`python -m tests.culprit`, {count} launches from seed {first} on{without}, "
        f"{time.strftime('%Y-%m-%d')}, {load}: {machine()}"
    )


if __name__ == "__main__":
    sys.exit(main())
