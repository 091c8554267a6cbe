"""The live table: drawn by rich, keys read one by one. What is in it is for table.py to say."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from spawnlaunch.watch import history, sample, table

SORTS = {"r": "rank", "c": "cpu%", "m": "mem", "g": "gpu%", "a": "said", "p": "pid"}
HELP = "q quit  s stacks now  sort by: r rank  c cpu  m memory  g gpu  a age of last line  p pid"
BACK = "any key: back to the table"
TITLE, HEADING, WARNING = Style(bold=True), Style(reverse=True), Style(color="red", bold=True)


class Page:
    """Lines that fill the screen: cheap to draw, as they are laid out already."""

    def __init__(self) -> None:
        self.lines: Sequence[str] = ()
        self.foot = HELP
        self.is_table = True
        self.first = 0  # the line at the top, moved by the arrows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = (options.height or console.height) - 1
        self.first = max(0, min(self.first, len(self.lines) - height))
        shown = list(self.lines[self.first : self.first + height])
        left = len(self.lines) - self.first - len(shown)
        for line in [*shown, *[""] * (height - len(shown))]:
            yield Segment(line[: options.max_width], self._style(line))
            yield Segment.line()
        foot = f"{left} more lines below (arrows)  {self.foot}" if left else self.foot
        yield Segment(foot[: options.max_width], HEADING)

    def _style(self, line: str) -> Style | None:
        if not self.is_table:
            return TITLE if line and not line[0].isspace() else None
        if line.startswith(f"  {table.ELSEWHERE}"):
            return WARNING
        if line.lstrip().startswith(("rank", "host")):
            return HEADING
        return TITLE if line and not line[0].isspace() and ": " in line else None


def show(sampler: sample.Sampler, every_s: float, sort: str) -> int:
    """Draw until q is typed; the result is the exit status."""
    console, page, histories = Console(highlight=False), Page(), history.Histories()
    shown = _Shown(sort)
    with _keys() as keys, Live(page, console=console, screen=True, auto_refresh=False) as live:
        due = 0.0
        while True:
            if time.monotonic() >= due:
                due = time.monotonic() + every_s
                shown.samples = sampler.sample()
                histories.add(shown.samples)
            if page.is_table:
                page.lines = table.table(
                    shown.samples, histories.notes(), console.width, shown.sort
                )
            live.refresh()
            key = keys(max(0.0, due - time.monotonic()))
            if key in ("q", "\x03", "\x04"):
                return 0
            if key:
                _typed(key, page, shown, live)


class _Shown:
    def __init__(self, sort: str) -> None:
        self.sort = sort
        self.samples: Sequence[sample.Sample] = ()


def _typed(key: str, page: Page, shown: _Shown, live: Live) -> None:
    if key in ("up", "down"):
        page.first += 1 if key == "down" else -1
        return
    if not page.is_table:
        page.is_table, page.foot, page.first = True, HELP, 0
    elif key == "s":
        page.is_table, page.foot, page.first = False, BACK, 0
        page.lines = ["asking ..."]
        live.refresh()
        page.lines = _stacks(shown.samples)
    else:
        shown.sort = SORTS.get(key, shown.sort)


def _stacks(samples: Sequence[sample.Sample]) -> list[str]:
    from spawnlaunch.watch import stacks

    lines: list[str] = []
    for ranks in sample.by_launch(samples).values():
        lines += [table.title(ranks), *stacks.told(ranks), ""]
    return lines


@contextmanager
def _keys() -> Iterator[_Keys]:
    """Keys as they are typed, Ctrl-C too; afterwards the terminal is as it was."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin, termios.TCSADRAIN)
        mode = termios.tcgetattr(sys.stdin)
        mode[1] |= termios.OPOST  # line breaks of what is drawn
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)
        yield _Keys()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class _Keys:
    """Waits for a key."""

    def __call__(self, timeout_s: float) -> str:
        """The key; "" where none was typed in that time, or the size of the terminal changed."""
        fd = sys.stdin.fileno()
        if not select.select([fd], [], [], timeout_s)[0]:
            return ""
        typed = os.read(fd, 64).decode(errors="replace")
        if not typed:
            return "q"  # the terminal has gone
        return {"\x1b[A": "up", "\x1b[B": "down"}.get(typed, typed[:1])
