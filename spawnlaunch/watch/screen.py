"""The live table: drawn by rich, keys read one by one. rank_table.py has its content."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from spawnlaunch.base import events
from spawnlaunch.hang import groups, spying
from spawnlaunch.watch import notes, rank_table, usage, waiting

SORTS = {"r": "rank", "c": "cpu%", "m": "mem", "g": "gpu%", "a": "said", "p": "pid",
         "w": "late%"}  # fmt: skip
HELP = "q quit  s stacks  h columns  sort by: r rank  c cpu  m mem  g gpu  a said  p pid  w late"
BACK = "any key: back to the table"
TITLE, HEADING, WARNING = Style(bold=True), Style(reverse=True), Style(color="red", bold=True)


class View:
    """Lines that fill the screen: cheap to draw, as they are laid out already."""

    def __init__(self, sort: str) -> None:
        self.sort = sort
        self.samples: Sequence[usage.Sample] = ()
        self.lines: Sequence[str] = ()
        self.show(is_table=True)

    def show(self, is_table: bool) -> None:
        """Show the table, or else the stacks, from the first line on."""
        self.is_table, self.foot = is_table, HELP if is_table else BACK
        self.first = 0  # the line at the top, moved by the arrows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = (options.height or console.height) - 1
        self.first = max(0, min(self.first, len(self.lines) - height))
        shown = list(self.lines[self.first : self.first + height])
        lines_below = len(self.lines) - self.first - len(shown)
        for line in [*shown, *[""] * (height - len(shown))]:
            yield Segment(line[: options.max_width], self._style(line))
            yield Segment.line()
        foot = f"{lines_below} more lines below (arrows)  {self.foot}" if lines_below else self.foot
        yield Segment(foot[: options.max_width], HEADING)

    def _style(self, line: str) -> Style | None:
        if not self.is_table:
            return TITLE if line and not line[0].isspace() else None
        if line.startswith(rank_table.OF_A_NOTE):
            return WARNING
        if line.lstrip().startswith(("rank", "host")):
            return HEADING
        return TITLE if line and not line[0].isspace() and ": " in line else None


def show(sampler: usage.Sampler, every_s: float, sort: str) -> int:
    """Draw until q is typed; the result is the exit status."""
    console, view, histories = Console(highlight=False), View(sort), notes.Histories()
    inquiry = waiting.Inquiry()
    with _raw_terminal(), Live(view, console=console, screen=True, auto_refresh=False) as live:
        due = 0.0
        while True:
            if time.monotonic() >= due:
                due = time.monotonic() + every_s
                samples = sampler.sample()
                inquiry.start_if_due(samples)
                inquiry.read()
                view.samples = inquiry.shown(samples)
                histories.add(view.samples)
            if view.is_table:
                launch_notes = notes.merged(inquiry.findings(), histories.notes())
                view.lines = rank_table.table(
                    view.samples, launch_notes, *console.size, view.sort, histories.by_launch
                )
            live.refresh()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # a run of py-spy that has ended
                    pass
            key = _key(due, inquiry)
            if key in ("q", "\x03", "\x04"):
                return 0
            if key:
                _typed(key, view, live)


def _typed(key: str, view: View, live: Live) -> None:
    if key in ("up", "down"):
        view.first += 1 if key == "down" else -1
    elif not view.is_table:
        view.show(is_table=True)
    elif key == "h":
        view.show(is_table=False)
        view.lines = rank_table.legend()
    elif key == "s":
        view.show(is_table=False)
        view.lines = ["asking ..."]
        live.refresh()
        view.lines = []
        for ranks in usage.by_launch(view.samples).values():
            view.lines += [rank_table.title(ranks), *_roll_call(ranks), ""]
    else:
        view.sort = SORTS.get(key, view.sort)


def _roll_call(ranks: Sequence[usage.Sample]) -> list[str]:
    """The places of a launch's ranks at this moment, a line for each group, the smallest first."""
    inquiry, loop = waiting.Inquiry(0.0), events.Loop()
    inquiry.start_if_due([sample for sample in ranks if not (sample.held and sample.held.is_mute)])
    inquiry.finish()
    by_rank = inquiry.answers.get(ranks[0].launch, {})
    stacks = [
        groups.StackText(rank, True, "by itself", each.threads) for rank, each in by_rank.items()
    ]
    missing = [sample for sample in ranks if sample.rank not in by_rank]

    def add_stack(sample: usage.Sample, source: str, text: str) -> None:
        missing.remove(sample)
        if text:  # else it has ended
            stacks.append(groups.StackText(sample.rank, True, source, text))

    for sample in [*missing]:
        spying.look(sample.pid, loop, partial(add_stack, sample))
    while missing:
        loop.turn()
    lines = [f"  rank {sample.rank} is {sample.held.words}" for sample in ranks if sample.held]
    return [*lines, *(f"  {group.line}" for group in groups.groups(stacks))]


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Read keys as they are typed, Ctrl-C too.

    Afterwards the terminal is as it was.
    """
    before = termios.tcgetattr(sys.stdin)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        tty.setraw(sys.stdin, termios.TCSADRAIN)
        mode = termios.tcgetattr(sys.stdin)
        mode[1] |= termios.OPOST  # line breaks in the drawn lines
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _key(until: float, inquiry: waiting.Inquiry) -> str:
    """Wait for a key; "" where none was typed by `until`.

    Answers of the ranks are read meanwhile, part by part.
    """
    fd = sys.stdin.fileno()
    ready: list[int] = []
    while fd not in ready:
        inquiry.read()
        timeout_s = max(0.0, until - time.monotonic())
        ready = select.select([fd, *inquiry.fds], [], [], timeout_s)[0]
        if not ready:
            return ""
    typed = os.read(fd, 64).decode(errors="replace")
    if not typed:
        return "q"  # the terminal has gone
    return {"\x1b[A": "up", "\x1b[B": "down"}.get(typed, typed[:1])
