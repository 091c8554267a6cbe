"""What `make nightly` runs beside the tests of this environment: other versions, and the table.

    python -m nox -s oldest newest   tests of launching, torchrun's command lines and training
    python -m nox -s table           what all of a night came to: build/nightly/README.md

Each version has an environment of its own, of some gigabytes where torch is one for CUDA.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

import nox

REPORTS = Path("build/nightly")  # pytest's reports, in the format of JUnit; the mutants' record
PROJECT = nox.project.load_toml("pyproject.toml")["project"]
PACKAGES = PROJECT["dependencies"][:3]  # torch, psutil and numpy
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "tomli")
TESTS = ("tests/run/test_local.py", "tests/calling", "tests/torchrun", "tests/train")
HEAD = ("tests", "passed", "failed", "skipped", "minutes")
nox.options.sessions = ["oldest", "newest"]


@nox.session(python=PROJECT["requires-python"].removeprefix(">="))
def oldest(session: nox.Session) -> None:
    """The oldest Python and packages that the project allows."""
    run(session, *(f"{package.replace('>=', '==')}.*" for package in PACKAGES))


@nox.session(python=["3.13", "3.14"])
def newest(session: nox.Session) -> None:
    """A newer Python, and the newest packages that pip finds."""
    run(session, "--upgrade", *PACKAGES)


def run(session: nox.Session, *packages: str) -> None:
    session.install(*packages, *TOOLS)
    report = f"--junit-xml={REPORTS}/{session.name}.xml"
    session.run("python", "-m", "pytest", "-n", "2", report, *session.posargs, *TESTS)


@nox.session(python=False)
def table(session: nox.Session) -> None:
    """Write what came of the night, with its day and commit."""
    commit = session.run("git", "rev-parse", "--short", "HEAD", external=True, silent=True)
    head = f"{datetime.now(timezone.utc):%Y-%m-%d}, commit {str(commit).strip()}\n"
    cells = [HEAD, ["---"] * len(HEAD), *rows()]
    lines = [head, *(f"| {' | '.join(map(str, row))} |" for row in cells)]
    (REPORTS / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def rows() -> Iterator[tuple[object, ...]]:
    """A row for each room of the nightly tests, for each version, and for the mutants."""
    for report in sorted(REPORTS.glob("*.xml")):
        counts: dict[str, Counter[str]] = {}
        seconds = Counter[str]()
        for case in ElementTree.parse(report).iter("testcase"):
            room = case.attrib["classname"].split(".")[1]
            name = room if report.stem == "nightly" else report.stem
            kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
            counts.setdefault(name, Counter())[min(kinds, default="passed")] += 1
            seconds[name] += float(case.attrib["time"])
        for name, count in counts.items():
            failed = count["failure"] + count["error"]
            yield name, count["passed"], failed, count["skipped"], round(seconds[name] / 60)
    if (record := REPORTS / "mutants.jsonl").exists():
        outcomes = {each["mutant"]: each for each in map(json.loads, record.open())}
        found = sum(bool(each["by"]) for each in outcomes.values())
        minutes = sum(each["cpu_s"] for each in outcomes.values()) / 60
        yield "mutants found", found, len(outcomes) - found, 0, round(minutes)
