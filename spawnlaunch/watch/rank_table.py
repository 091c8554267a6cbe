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
TEMPERATURE = "temperature"
BUNDLED = "/spawnlaunch/train/__main__.py"
NAME_COLUMNS = 16  # of a host, at most
BLOCKS = "\N{BOX DRAWINGS LIGHT HORIZONTAL}▁▂▃▄▅▆▇█"  # nothing, and eighths
LATELY = 12  # looks
STATES = {"running": "run", "sleeping": "sleep", "disk-sleep": "disk", "stopped": "stop",
          "tracing-stop": "trace", "zombie": "dead", "idle": "idle", "swapped": "swap"}  # fmt: skip


class Column(NamedTuple):
    """A column: its heading, the text of a cell, and the key by which it sorts."""

    name: str
    meaning: str
    cell: Callable[[usage.Sample], str]
    key: Callable[[usage.Sample], Any]
    drops: int  # where there is little room the column with the highest goes first
    left: bool = False


def _number(value: float | None) -> float:
    return -1.0 if value is None else value


def _state(one: usage.Sample) -> str:
    kind = one.held.kind if one.held else one.state
    return STATES.get(kind, kind)


def _phase(one: usage.Sample) -> str:
    return one.progress.phase if one.progress else ""


COLUMNS = (
    Column("host", "its node", lambda s: s.host[:NAME_COLUMNS], lambda s: s.host, 9, True),
    Column("rank", "its number among all ranks", lambda s: str(s.rank), lambda s: s.rank, 0),
    Column("pid", "its process", lambda s: str(s.pid), lambda s: s.pid, 5),
    Column("state", "what its process does, as ps has it", _state, _state, 6, True),
    Column("cpu%", f"CPU time, of the cores that it is bound to; {ELSEWHERE}: a thread ran outside",
           lambda s: _cpu(s), lambda s: -_number(s.cpu), 1),
    Column("cpus", "the CPUs that it is bound to",
           lambda s: _short(s.cpus, 11), lambda s: s.cpus, 8, True),
    Column("mem", "resident memory", lambda s: size(s.memory), lambda s: -s.memory, 2),
    Column("peak", "the most that this was", lambda s: size(s.peak), lambda s: -_number(s.peak), 7),
    Column("thr", "threads", lambda s: str(s.threads), lambda s: -s.threads, 11),
    Column("gpu%", "share of the time in which its device works",
           lambda s: _device(s, "use", "{:.0f}"), lambda s: -_of(s, "use"), 3),
    Column("gpumem", "memory of its device that is used",
           lambda s: size(_raw(s, "memory")), lambda s: -_of(s, "memory"), 4),
    Column("°C", "temperature of its device",
           lambda s: _device(s, TEMPERATURE, "{:.0f}"), lambda s: -_of(s, TEMPERATURE), 12),
    Column("MHz", "clock of its device",
           lambda s: _device(s, "clock", "{:.0f}"), lambda s: -_of(s, "clock"), 13),
    Column("rd/s", "bytes read per second",
           lambda s: size(s.reads), lambda s: -_number(s.reads), 10),
    Column("wr/s", "bytes written per second",
           lambda s: size(s.writes), lambda s: -_number(s.writes), 10),
    Column("said", "age of its last output",
           lambda s: age(s.quiet_s), lambda s: -_number(s.quiet_s), 4),
    Column("wait%", "share of the time in which it waits for other ranks",
           lambda s: _share(s.waits), lambda s: -_number(s.waits), 4),
    Column("late%", "share of the time in which other ranks wait for it",
           lambda s: _share(s.waited_for), lambda s: -_number(s.waited_for), 3),
    Column("step", "steps done, of the bundled loop",
           lambda s: _step(s), lambda s: -(s.progress.step if s.progress else -1), 3),
    Column("/s", "samples per second of all ranks, likewise",
           lambda s: _rate(s), lambda s: -_number(s.progress and s.progress.rate), 9),
    Column("phase", "what it does in a step, likewise", _phase, _phase, 5, True),
)  # fmt: skip
# Figures with a history: the heading, and the share in use.
TRENDS: Sequence[tuple[str, Callable[[usage.Sample], float | None]]] = (
    ("cpu lately", lambda s: None if s.cpu is None else s.cpu / _bound(s)),
    ("gpu lately", lambda s: None if _raw(s, "use") is None else _of(s, "use") / 100),
)
ALWAYS = ("rank", "pid", "state", "cpu%", "cpus", "mem", "peak", "thr", "rd/s", "wr/s", "said")


def table(
    samples: Sequence[usage.Sample],
    found: Mapping[str, Sequence[culprits.Note]],
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
            and all(one.waits is None for one in ranks)
            and ranks[1:]
        ):
            parts[1].append(NO_WITNESS.format(ranks[0].starter)[:width])
        for note in found.get(launch, ()):
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
    who = name if name.startswith(starter) else f"{starter} {name}"
    return errors.one_line(f"{who}: {count}  {_command(ranks[0].command)}")


def _command(words: str) -> str:
    """The command without parts that all have: interpreter, -u, and this package's path."""
    first, _, rest = words.partition(" ")
    words = rest if first.rpartition("/")[2].startswith("python") else words
    words = words.removeprefix("-u ")
    script, _, arguments = words.partition(" ")
    return f"spawnlaunch.train {arguments}" if script.endswith(BUNDLED) else words


def rows(ranks: Sequence[usage.Sample], width: int, sort: str, history: notes.History) -> list[str]:
    """The heading and a line for each rank, as many columns as fit."""
    key = next(column.key for column in COLUMNS if column.name == sort)
    ordered = sorted(ranks, key=lambda one: (key(one), one.rank, one.host))
    columns = [
        [cell.ljust(wide) if column.left else cell.rjust(wide) for cell in cells]
        for column, cells, wide in _columns(ordered, width)
    ]
    left = width - sum(len(column[0]) + 1 for column in columns)
    columns += [*_trends(ordered, history)][: max(0, left // (LATELY + 1))]
    return [" ".join(line).rstrip()[:width] for line in zip(*columns, strict=True)]


def _columns(ranks: Sequence[usage.Sample], width: int) -> list[tuple[Column, list[str], int]]:
    """The columns that are shown, each with its cells (its name is the first) and its width."""
    several_hosts = len({one.host for one in ranks}) > 1
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
        cells = [name.ljust(LATELY)]
        for one in ranks:
            shares = [share(sample) for sample in [*history.get(one.rank, ())][-LATELY:]]
            blocks = (" " if s is None else BLOCKS[max(0, min(8, round(8 * s)))] for s in shares)
            cells.append("".join(blocks).rjust(LATELY))
        if any(cell.strip() for cell in cells[1:]):
            yield cells


def _cpu(one: usage.Sample) -> str:
    """The percentage of the rank's cores in use; of one core where it is bound to none."""
    if one.cpu is None:
        return ""
    return f"{100 * one.cpu / _bound(one):.0f}{ELSEWHERE if one.elsewhere else ''}"


def _bound(one: usage.Sample) -> int:
    return len(cpuset.parse(one.cpus)) or 1


def _share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}"


def _raw(one: usage.Sample, name: str) -> float | None:
    return getattr(one.device, name) if one.device else None


def _of(one: usage.Sample, name: str) -> float:
    return _number(_raw(one, name))


def _device(one: usage.Sample, name: str, how: str) -> str:
    value = _raw(one, name)
    return "" if value is None else how.format(value)


def _step(one: usage.Sample) -> str:
    if one.progress is None or one.progress.steps is None:
        return ""
    return f"{one.progress.step}/{one.progress.steps}"


def _rate(one: usage.Sample) -> str:
    rate = one.progress.rate if one.progress else None
    return "" if rate is None else f"{rate:.3g}" if rate < 100 else f"{rate:.0f}"


def size(value: float | None) -> str:
    """Bytes in at most four digits and a letter; powers of 1024."""
    if value is None:
        return ""
    for unit in "BKMGT":
        if value < 999.5 or unit == "T":
            break
        value /= 1024
    return f"{value:.0f}{unit}" if value >= 9.95 or unit == "B" else f"{value:.1f}{unit}"


def age(seconds: float | None) -> str:
    """Seconds, minutes or hours, in at most four characters."""
    if seconds is None:
        return ""
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 99.5 * 60 else f"{seconds / 3600:.0f}h"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 2]}.."
