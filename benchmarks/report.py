"""Report the result of a benchmark, and write its section of docs/benchmarks.md.

Each benchmark makes a Section; on the command line it is printed, and with --write it replaces the
section of the same name in the document, between two comments that name it. So every figure there
comes from the command beside it, on the machine and the day that stand there too.
"""

import argparse
import math
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

import numpy as np

from benchmarks import quiet
from benchmarks.quiet import Use
from spawnlaunch.bench import stats
from spawnlaunch.bench.stats import Comparison

DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
WIDTH = 100
LEVEL = 0.05  # of an interval
FEWEST = math.floor(stats.quantile(LEVEL) ** 2) + 1  # rounds that can reach it at all
PACKAGES = ("torch", "accelerate", "transformers")
PROGRAMS = (("mpirun", "--version"), ("slurmctld", "-V"))
GOAL = re.compile(
    r"^(?P<quantity>.+?)(?:: (?P<value>[\d.]+)(?: \([^)]*\))?)?, "
    r"the goal is at (?:least|most) [\d.]+: "
    r"(?P<judged>[^;\n]+?)(?:; earlier: (?P<earlier>.*?))? *$",
    re.MULTILINE,
)
DAY = re.compile(r"^`python -m .*`, (\d{4}-\d\d-\d\d), ", re.MULTILINE)
MOST_EARLIER = 5

HEADER = """\
# Benchmarks of the launcher and of the training loop

Figures of the launcher and of the training loop beside others, which `make bench` writes.

The programs take turns within each round, in an order that is drawn. A cell has the median over the
rounds, with the least and the most. A goal is for the ratio of the rounds' means, or for their
mean. It is met if the whole 95 % interval reaches it ([how](bench-method.md)). On a busy machine
there are only ratios to the first line. After a goal are the values of up to five earlier days.
"""


class Goal(NamedTuple):
    """A goal of a benchmark: the measured value and its limit."""

    quantity: str
    value: float
    limit: float
    at_least: bool = False  # else at most
    interval: tuple[float, float] | None = None  # of the value; None: the value is exact
    is_ratio: bool = True  # False: it is not judged where the machine was busy

    @property
    def judged(self) -> float:
        """The end of the interval that is farther from the goal."""
        if self.interval is None:
            return self.value
        return self.interval[0] if self.at_least else self.interval[1]


class Times(NamedTuple):
    """A measured cell: a value for each round."""

    values: Sequence[float]
    unit: str = ""


class Section(NamedTuple):
    """The result of one benchmark."""

    name: str  # of its module
    title: str
    text: str  # what is measured
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Times]]
    goals: Sequence[Goal] = ()
    keeps_times: bool = False  # on a busy machine, too: its times stand beside CPU times


def main(
    module: str,
    about: str | None,
    measure: Callable[[argparse.Namespace], Section],
    rounds: int,
    add_flags: Callable[[argparse.ArgumentParser], None] = lambda _: None,
) -> None:
    """Run the command line of a benchmark: --rounds, --write and the flags of `add_flags`."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rounds", type=int, default=rounds, metavar="N", help="default %(default)s"
    )
    parser.add_argument("--write", action="store_true", help=f"into {DOCUMENT.name} too")
    parser.add_argument("--at-once", action="store_true", help="do not wait for a quiet machine")
    add_flags(parser)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed launcher is compiled
    words = [word for word in sys.argv[1:] if word != "--write"]
    command = shlex.join(["python", "-m", f"benchmarks.{module}", *words])
    before = quiet.wait(0 if options.at_once else quiet.PATIENCE_S)
    load, began = os.getloadavg()[0], quiet.look()
    section = measure(options)
    during = quiet.use(began, quiet.look())
    text = render(section, command, load, before, during)
    print(text)
    if options.write:
        write(module, text)


def render(section: Section, command: str, load: float, before: Use, during: Use) -> str:
    """The section as Markdown; `before` and `during` are other processes' use of the CPUs."""
    is_busy = not (before.is_quiet and during.is_quiet)
    rows = relative(section.rows) if is_busy and not section.keeps_times else section.rows
    busy = "**Busy**, so these are ratios to the first line of each column: " if is_busy else ""
    if is_busy and section.keeps_times:
        busy = "**Busy**, so these times are longer than they need be: "
    lines = [
        f"## {section.title}",
        "",
        textwrap.fill(" ".join(section.text.split()), WIDTH),
        "",
        "| " + " | ".join(section.columns) + " |",
        "|---" * len(section.columns) + "|",
        *("| " + " | ".join(map(shown, row)) + " |" for row in rows),
        "",
        *(f"{_goal(goal, is_busy=is_busy)}  " for goal in section.goals),
        *([""] if section.goals else []),
        *([f"{busy}{during}.  "] if is_busy else []),
        f"`{command}`, {time.strftime('%Y-%m-%d')}, load {load:.1f} before it: {machine()}",
    ]
    return "\n".join(lines)


def _goal(goal: Goal, *, is_busy: bool) -> str:
    side = "least" if goal.at_least else "most"
    ends = f" ({goal.interval[0]:.3f} to {goal.interval[1]:.3f})" if goal.interval else ""
    if is_busy and not goal.is_ratio:
        return f"{goal.quantity}, the goal is at {side} {goal.limit:.3f}: not judged, it was busy"
    if goal.judged in (0.0, math.inf) and goal.interval:
        return f"{goal.quantity}: {goal.value:.3f}, too few rounds to tell; type --rounds {FEWEST}"
    reached = goal.judged >= goal.limit if goal.at_least else goal.judged <= goal.limit
    met = "met" if reached else "NOT met"
    return f"{goal.quantity}: {goal.value:.3f}{ends}, the goal is at {side} {goal.limit:.3f}: {met}"


def share(values: Sequence[float], base: Sequence[float]) -> Comparison:
    """The ratio of `values` to `base`, within the rounds."""
    return stats.compared(stats.pair(base, values, False), LEVEL)


def goal(quantity: str, values: Sequence[float], base: Sequence[float], limit: float) -> Goal:
    """A goal that `values` are at most this share of `base`."""
    compared = share(values, base)
    return Goal(quantity, compared.ratio, limit, interval=(compared.low, compared.high))


def goal_of_difference(
    quantity: str, values: Sequence[float], base: Sequence[float], limit: float
) -> Goal:
    """A goal that `values` exceed `base` at most by `limit`, in the unit of both."""
    return goal_of_value(quantity, np.subtract(values, base).tolist(), limit)


def goal_of_value(quantity: str, values: Sequence[float], limit: float) -> Goal:
    """A goal that the mean of `values`, one for each round, is at most `limit`, in their unit.

    The interval has each middle about which the rounds have no preferred side, by the same bound as
    the ratios of stats.py.
    """
    middle, wide = float(np.mean(values)), math.inf
    if (degrees := len(values) - stats.quantile(LEVEL) ** 2) > 0:  # else there are too few rounds
        wide = stats.quantile(LEVEL) * float(np.std(values)) / math.sqrt(degrees)
    return Goal(quantity, middle, limit, interval=(middle - wide, middle + wide), is_ratio=False)


def relative(rows: Sequence[Sequence[str | Times]]) -> list[list[str | Times]]:
    """Replace each measured cell by its ratio to the first one of its column."""
    table: list[list[str | Times]] = []
    bases: dict[int, Times] = {}
    for row in rows:
        line: list[str | Times] = []
        for column, value in enumerate(row):
            if isinstance(value, Times) and value.values:
                base = bases.setdefault(column, value)
                line.append(f"{median(value.values) / median(base.values):.3f}")
            else:
                line.append(value)
        table.append(line)
    return table


def write(name: str, text: str, document: Path = DOCUMENT) -> None:
    """Put the text into its section of the document; the other sections stay as they are."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    old = document.read_text() if document.exists() else ""
    _, mark, sections = old.partition("<!-- ")
    new = f"{HEADER}\n{mark}{sections}"
    if begin in new:
        head, _, rest = new.partition(begin)
        before, _, tail = rest.partition(end)
        new = f"{head}{begin}\n{remembering(text, before)}\n{end}{tail}"
    else:
        new = f"{new.rstrip()}\n\n{begin}\n{text}\n{end}\n"
    document.parent.mkdir(exist_ok=True)
    document.write_text(new)


def remembering(text: str, before: str) -> str:
    """Add to a section's goals their values in the section `before`, and the earlier ones there."""
    values, day = dict[str, list[str]](), DAY.search(before)
    for was in GOAL.finditer(before):
        last = f"{was['value']} ({day[1]})" if day and was["value"] else ""
        earlier = [last, *(was["earlier"] or "").split(", ")]
        values[was["quantity"]] = [each for each in earlier if each]

    def with_earlier(goal: re.Match[str]) -> str:
        earlier = ", ".join(values.get(goal["quantity"], [])[:MOST_EARLIER])
        return f"{goal[0].rstrip()}; earlier: {earlier}  " if earlier else goal[0]

    return GOAL.sub(with_earlier, text)


def cell(values: Sequence[float], unit: str = "") -> Times:
    """Make a measured cell."""
    return Times(values, unit)


def shown(value: str | Times) -> str:
    """The text of a cell: the median, least and most, with three significant digits."""
    if isinstance(value, str):
        return value
    if not value.values:
        return ""
    if len(value.values) == 1:
        return f"{short(value.values[0])}{value.unit}"
    low, high = short(min(value.values)), short(max(value.values))
    return f"{short(median(value.values))} ({low} to {high}){value.unit}"


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
    parts += [first_line for command in PROGRAMS if (first_line := _first_line(command))]
    return ", ".join(parts)


def _processor() -> str:
    """The model name in /proc/cpuinfo (proc(5))."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _first_line(command: Sequence[str]) -> str:
    with suppress(OSError, subprocess.CalledProcessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[0].strip() if done.stdout else ""
    return ""
