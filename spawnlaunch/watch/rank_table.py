"""The table of top, as text: pure functions from samples to lines.

Columns without figures are left out, and then, where the screen is narrow, those that are least
wanted; where there is room, the use of CPUs and devices in the last looks is drawn. A mark after
the CPU use means that a thread ran outside the rank's mask.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from spawnlaunch.base import cpuset, errors
from spawnlaunch.hang import culprits
from spawnlaunch.watch import notes, usage

ELSEWHERE = "!"
SPAWNLAUNCH = "spawnlaunch"
NO_WITNESS = (
    "  who is waited for is not known: {} starts no witness in its workers; begin the script with "
    "from spawnlaunch import witness; witness.begin()"
)
OF_A_NOTE = f"  {ELSEWHERE} ", " " * 6  # begin its first line, and those after it
BUNDLED = "/spawnlaunch/train/__main__.py"
NAME_COLUMNS = 16  # of a host, at most
MOST_CPUS = 11  # characters of their list
BLOCKS = "\N{BOX DRAWINGS LIGHT HORIZONTAL}▁▂▃▄▅▆▇█"  # nothing, and eighths
TREND_LOOKS = 12  # looks
STATES = {"running": "run", "sleeping": "sleep", "disk-sleep": "disk", "stopped": "stop",
          "tracing-stop": "trace", "zombie": "dead", "idle": "idle", "swapped": "swap"}  # fmt: skip


class Column(NamedTuple):
    """A column: a value of each rank, and how it is shown; most are sorted from the largest on."""

    name: str
    meaning: str
    drops: int  # where there is little room the column with the highest goes first
    value: Callable[[usage.Sample], Any]  # None: not known
    show: Callable[[Any], str] = str
    suffix: Callable[[usage.Sample], str] = lambda _: ""
    is_ascending: bool = False
    is_text: bool = False  # aligned to the left

    def cell(self, sample: usage.Sample) -> str:
        """The text for a rank; "" where the value is not known."""
        value = self.value(sample)
        return "" if value is None else self.show(value) + self.suffix(sample)

    def key(self, sample: usage.Sample) -> Any:
        """The key by which ranks are sorted."""
        value = self.value(sample)
        if self.is_ascending:
            return value
        return 1.0 if value is None else -value


def size(value: float | None) -> str:
    """Bytes in at most four digits and a letter; powers of 1024."""
    if value is None:
        return ""
    for unit in "BKMGT":
        if value < 999.5 or unit == "T":
            break
        value /= 1024
    return f"{value:.0f}{unit}" if value >= 9.95 or unit == "B" else f"{value:.1f}{unit}"


def _age(seconds: float) -> str:
    """Seconds, minutes or hours, in at most four characters."""
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 99.5 * 60 else f"{seconds / 3600:.0f}h"


def _bound(sample: usage.Sample) -> int:
    return len(cpuset.parse(sample.cpus)) or 1


def _state(sample: usage.Sample) -> str:
    kind = sample.held.kind if sample.held else sample.state
    return STATES.get(kind, kind)


def _step(sample: usage.Sample) -> int | None:
    has_steps = sample.progress and sample.progress.steps is not None
    return sample.progress.step if sample.progress and has_steps else None


def _share(share: float) -> str:
    return f"{100 * share:.0f}"


_rounded = "{:.0f}".format
COLUMNS = (
    Column("host", "its node", 9, lambda s: s.host[:NAME_COLUMNS], is_ascending=True, is_text=True),
    Column("rank", "its number among all ranks", 0, lambda s: s.rank, is_ascending=True),
    Column("pid", "its process", 5, lambda s: s.pid, is_ascending=True),
    Column("state", "what its process does, as ps has it", 6, _state,
           is_ascending=True, is_text=True),
    Column("cpu%", f"CPU time, of the cores that it is bound to; {ELSEWHERE}: a thread ran outside",
           1, lambda s: None if s.cpu is None else 100 * s.cpu / _bound(s), _rounded,
           suffix=lambda s: ELSEWHERE * bool(s.elsewhere)),
    Column("cpus", "the CPUs that it is bound to", 8, lambda s: s.cpus,
           lambda cpus: cpus if len(cpus) <= MOST_CPUS else f"{cpus[: MOST_CPUS - 2]}..",
           is_ascending=True, is_text=True),
    Column("mem", "resident memory", 2, lambda s: s.memory, size),
    Column("peak", "the most that this was", 7, lambda s: s.peak, size),
    Column("thr", "threads", 11, lambda s: s.threads),
    Column("gpu%", "share of the time in which its device works", 3,
           lambda s: s.device and s.device.use, _rounded),
    Column("gpumem", "memory of its device that is used", 4,
           lambda s: s.device and s.device.memory, size),
    Column("°C", "temperature of its device", 12,
           lambda s: s.device and s.device.temperature, _rounded),
    Column("MHz", "clock of its device", 13, lambda s: s.device and s.device.clock, _rounded),
    Column("rd/s", "bytes read per second", 10, lambda s: s.reads, size),
    Column("wr/s", "bytes written per second", 10, lambda s: s.writes, size),
    Column("said", "age of its last output", 4, lambda s: s.quiet_s, _age),
    Column("wait%", "share of the time in which it waits for other ranks", 4,
           lambda s: s.wait_share, _share),
    Column("late%", "share of the time in which other ranks wait for it", 3,
           lambda s: s.late_share, _share),
    Column("step", "steps done, of the bundled loop", 3, _step,
           suffix=lambda s: f"/{s.progress.steps}" if s.progress else ""),
    Column("/s", "samples per second of all ranks, of the bundled loop", 9,
           lambda s: s.progress and s.progress.rate,
           lambda rate: f"{rate:.3g}" if rate < 100 else f"{rate:.0f}"),
    Column("phase", "what it does in a step, of the bundled loop", 5,
           lambda s: s.progress.phase if s.progress else "", is_ascending=True, is_text=True),
)  # fmt: skip
# Figures with a history: the heading, and the share in use.
TRENDS: Sequence[tuple[str, Callable[[usage.Sample], float | None]]] = (
    ("cpu lately", lambda s: None if s.cpu is None else s.cpu / _bound(s)),
    ("gpu lately", lambda s: s.device.use / 100 if s.device and s.device.use is not None else None),
)
ALWAYS = ("rank", "pid", "state", "cpu%", "cpus", "mem", "peak", "thr", "rd/s", "wr/s", "said")


def table(
    samples: Sequence[usage.Sample],
    launch_notes: Mapping[str, Sequence[culprits.Note]],
    width: int,
    height: float = math.inf,
    sort: str = "rank",
    histories: Mapping[str, notes.History] | None = None,
) -> list[str]:
    """The lines for all launches, each with a title, its ranks, and the notes on them.

    The notes come first where they would not be seen on a screen of that height.
    """
    if not samples:
        return ["no launch of yours runs here"]
    lines: list[str] = []
    for launch, ranks in usage.by_launch(samples).items():
        lines += [*([""] if lines else []), title(ranks)[:width]]
        parts = [rows(ranks, width, sort, (histories or {}).get(launch, {})), []]
        if (
            ranks[0].starter != SPAWNLAUNCH
            and all(rank.wait_share is None for rank in ranks)
            and ranks[1:]
        ):
            parts[1].append(NO_WITNESS.format(ranks[0].starter)[:width])
        for note in launch_notes.get(launch, ()):
            first, more = OF_A_NOTE
            parts[1] += textwrap.wrap(
                note.words, width, initial_indent=first, subsequent_indent=more
            )
        is_too_long = len(lines) + sum(map(len, parts)) >= height
        lines += chain(*(reversed(parts) if is_too_long else parts))
    return lines


def legend() -> list[str]:
    """The meaning of each column."""
    return ["columns", *(f"  {column.name:8} {column.meaning}" for column in COLUMNS)]


def title(ranks: Sequence[usage.Sample]) -> str:
    """A line on a launch: how many of its ranks are here, and which program they run."""
    here, size_ = len(ranks), ranks[0].world_size
    count = f"{size_} rank{'s' * (size_ != 1)}" if here == size_ else f"{here} of {size_} ranks"
    name, starter = ranks[0].launch, ranks[0].starter
    launch_name = name if name.startswith(starter) else f"{starter} {name}"
    # The command is shown without parts that all have: interpreter, -u, this package's path.
    command = ranks[0].command
    first, _, rest = command.partition(" ")
    command = rest if first.rpartition("/")[2].startswith("python") else command
    command = command.removeprefix("-u ")
    script, _, arguments = command.partition(" ")
    command = f"spawnlaunch.train {arguments}" if script.endswith(BUNDLED) else command
    return errors.one_line(f"{launch_name}: {count}  {command}")


def rows(ranks: Sequence[usage.Sample], width: int, sort: str, history: notes.History) -> list[str]:
    """The heading and a line for each rank, as many columns as fit."""
    key = next(column.key for column in COLUMNS if column.name == sort)
    ordered = sorted(ranks, key=lambda rank: (key(rank), rank.rank, rank.host))
    columns = [
        [cell.ljust(wide) if column.is_text else cell.rjust(wide) for cell in cells]
        for column, cells, wide in _columns(ordered, width)
    ]
    free_columns = width - sum(len(column[0]) + 1 for column in columns)
    columns += [*_trends(ordered, history)][: max(0, free_columns // (TREND_LOOKS + 1))]
    return [" ".join(line).rstrip()[:width] for line in zip(*columns, strict=True)]


def _columns(ranks: Sequence[usage.Sample], width: int) -> list[tuple[Column, list[str], int]]:
    """The columns that are shown, each with its cells (its name is the first) and its width."""
    several_hosts = len({rank.host for rank in ranks}) > 1
    columns = []
    for column in COLUMNS:
        cells = [column.name, *map(column.cell, ranks)]
        wanted = column.name in ALWAYS or any(cells[1:])
        if several_hosts if column.name == "host" else wanted:
            columns.append((column, cells, max(map(len, cells))))
    while sum(wide + 1 for _, _, wide in columns) > width + 1 and len(columns) > 1:
        columns.remove(max(columns, key=lambda each: each[0].drops))
    return columns


def _trends(ranks: Sequence[usage.Sample], history: notes.History) -> Iterable[list[str]]:
    """Columns of recent use, with their headings."""
    for name, share in TRENDS:
        cells = [name.ljust(TREND_LOOKS)]
        for rank in ranks:
            shares = [share(sample) for sample in [*history.get(rank.rank, ())][-TREND_LOOKS:]]
            blocks = (" " if s is None else BLOCKS[max(0, min(8, round(8 * s)))] for s in shares)
            cells.append("".join(blocks).rjust(TREND_LOOKS))
        if any(cell.strip() for cell in cells[1:]):
            yield cells
