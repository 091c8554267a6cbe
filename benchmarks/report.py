"""What a benchmark reports, and its section of docs/benchmarks.md, which no hand writes.

Each benchmark makes a Section; on the command line it is printed, and with --write it replaces the
section of the same name in the document, between two comments that name it. So every figure there
was produced by the command beside it, on the machine and the day that stand there too.
"""

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import NamedTuple

DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
WIDTH = 100
PACKAGES = ("torch", "accelerate", "transformers")
PROGRAMS = (("mpirun", "--version"), ("slurmctld", "-V"))

HEADER = """\
# Benchmarks of the launcher and of the training loop

`make bench` writes this file: no figure in it was typed. In every benchmark all that are compared
take turns within each round, so that a machine that gets slower gets slower for all of them. A cell
is the median over the rounds, with the least and the most; a ratio is that of the medians. What
pinning is worth on a machine, [`python -m spawnlaunch.bench`](bench.md) measures.
"""


class Goal(NamedTuple):
    """What a benchmark is to show."""

    what: str
    value: float
    limit: float
    at_least: bool = False  # else at most


class Section(NamedTuple):
    """The result of one benchmark."""

    name: str  # of its module
    title: str
    text: str  # what is measured
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    goals: Sequence[Goal] = ()


def main(
    module: str,
    about: str | None,
    measure: Callable[[argparse.Namespace], Section],
    rounds: int,
    add_flags: Callable[[argparse.ArgumentParser], None] = lambda _: None,
) -> None:
    """The command line of a benchmark: --rounds, --write and what `add_flags` adds."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rounds", type=int, default=rounds, metavar="N", help="default %(default)s"
    )
    parser.add_argument("--write", action="store_true", help=f"into {DOCUMENT.name} too")
    add_flags(parser)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed launcher is compiled
    words = [word for word in sys.argv[1:] if word != "--write"]
    command = shlex.join(["python", "-m", f"benchmarks.{module}", *words])
    load = os.getloadavg()[0]  # before there is any of our own
    text = render(measure(options), command, load)
    print(text)
    if options.write:
        write(module, text)


def render(section: Section, command: str, load: float) -> str:
    """The section as Markdown; `load` is what the machine had to do already."""
    lines = [
        f"## {section.title}",
        "",
        textwrap.fill(" ".join(section.text.split()), WIDTH),
        "",
        "| " + " | ".join(section.columns) + " |",
        "|---" * len(section.columns) + "|",
        *("| " + " | ".join(row) + " |" for row in section.rows),
        "",
        *(f"{line}  " for line in map(_goal, section.goals)),
        *([""] if section.goals else []),
        f"`{command}`, {time.strftime('%Y-%m-%d')}, load {load:.1f} before it: {machine()}",
    ]
    return "\n".join(lines)


def _goal(goal: Goal) -> str:
    reached = goal.value >= goal.limit if goal.at_least else goal.value <= goal.limit
    side, met = "least" if goal.at_least else "most", "met" if reached else "NOT met"
    return f"{goal.what}: {goal.value:.3f}, the goal is at {side} {goal.limit:.3f}: {met}"


def write(name: str, text: str, document: Path = DOCUMENT) -> None:
    """Put the text into its section of the document; the others stay as they are."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n{text}\n{end}"
    old = document.read_text() if document.exists() else HEADER
    if begin in old:
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        new = re.sub(pattern, lambda _: section, old, flags=re.DOTALL)
    else:
        new = f"{old.rstrip()}\n\n{section}\n"
    document.parent.mkdir(exist_ok=True)
    document.write_text(new)


def cell(values: Sequence[float], unit: str = "") -> str:
    """Median, least and most, with three digits that count."""
    if not values:
        return ""
    return f"{short(median(values))} ({short(min(values))} to {short(max(values))}){unit}"


def short(value: float) -> str:
    """
    >>> short(12.3456), short(0.01234), short(1234.5)
    ('12.3', '0.0123', '1,234')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}"


def machine() -> str:
    """Processor, CPUs, memory, system and versions, in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        f"{len(os.sched_getaffinity(0))} CPUs ({_processor()}), {memory:.0f} GiB",
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
    ]
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            parts.append(f"{package} {version(package)}")
    parts += [said for command in PROGRAMS if (said := _first_line(command))]
    return ", ".join(parts)


def _processor() -> str:
    """proc(5), cpuinfo."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _first_line(command: Sequence[str]) -> str:
    with suppress(OSError, subprocess.CalledProcessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[0].strip() if done.stdout else ""
    return ""
