"""Write docs/nightly.md from what `make nightly` has left in build/nightly.

A report is a file of pytest's, in the format of JUnit; mutants.jsonl is that of tests/mutants.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "build" / "nightly"
PAGE = ROOT / "docs" / "nightly.md"
HEAD = """\
# Every night

`make nightly` runs what takes too long for each commit, and writes this page:

- launches in a simulated machine, by the 100,000, and real launches that are killed at random
- scripts of other libraries, under torchrun and under spawnlaunch
- the oldest and newest versions of Python, torch, numpy and psutil
- mutants: faults that are put into the code, which the tests have to find

Run on {day}, commit `{commit}`.

| tests | passed | failed | skipped | minutes |
|---|---|---|---|---|"""


def rows() -> Iterator[str]:
    """A line of the table for each room of the nightly tests, and for each session of nox."""
    for report in sorted(REPORTS.glob("*.xml")):
        counts: dict[str, Counter[str]] = {}
        seconds: Counter[str] = Counter()
        for case in ElementTree.parse(report).iter("testcase"):
            room = case.attrib["classname"].split(".")[1]
            name = room if report.stem == "nightly" else report.stem
            kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
            counts.setdefault(name, Counter())[min(kinds, default="passed")] += 1
            seconds[name] += float(case.attrib["time"])
        for name, count in counts.items():
            failed = count["failure"] + count["error"]
            cells = (name, count["passed"], failed, count["skipped"], round(seconds[name] / 60))
            yield f"| {' | '.join(map(str, cells))} |"
    mutants = REPORTS / "mutants.jsonl"
    if mutants.exists():
        outcomes = {each["mutant"]: each for each in map(json.loads, mutants.open())}
        found = sum(bool(each["by"]) for each in outcomes.values())
        minutes = sum(each["cpu_s"] for each in outcomes.values()) / 60
        yield f"| mutants found | {found} | {len(outcomes) - found} | 0 | {minutes:.0f} |"


def main() -> None:
    git = ("git", "rev-parse", "--short", "HEAD")
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    day = datetime.now(timezone.utc).date()
    lines = [HEAD.format(day=day, commit=commit.strip()), *rows()]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
