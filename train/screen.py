"""Write a run's output for the user: lines, and on a terminal a bar that is redrawn in place."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, TextIO

COLUMNS = "SPAWNLAUNCH_TERMINAL_COLUMNS"
BAR = "{percentage:3.0f}% |{bar:20}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


def terminal_columns(stream: TextIO, environ: Mapping[str, str]) -> int | None:
    """How many columns a line on ``stream`` may have; None where no terminal shows it.

    A launcher that reads its workers through pipes sets SPAWNLAUNCH_TERMINAL_COLUMNS to what its
    own terminal has left.
    """
    if stream.isatty():
        return shutil.get_terminal_size().columns
    columns = environ.get(COLUMNS, "")
    return int(columns) if columns.isdecimal() else None


class Screen:
    """Writes lines to a stream, and on a terminal a progress bar, if tqdm is installed.

    Without a stream, as on every rank but 0, it writes nothing.
    """

    def __init__(self, stream: TextIO | None, columns: int | None = None) -> None:
        self.stream = stream
        self.columns = columns if find_spec("tqdm") else None
        self.note = ""
        self.bar: Any = None

    def line(self, text: str) -> None:
        """Print a line that stays; on a terminal it replaces the bar."""
        if self.stream is None:
            return
        if self.bar is not None:
            self.bar.clear()
        # A log in the C locale takes no "é", and a run should not end over that.
        encoding = self.stream.encoding or "ascii"
        text = text.encode(encoding, errors="replace").decode(encoding)
        print(text, file=self.stream, flush=True)

    def progress(self, step: int, steps: int, note: str = "") -> None:
        """Show that ``step`` of ``steps`` is done; without a bar, print a line for a note only."""
        if self.columns is None or self.stream is None:
            if note:
                self.line(f"step {step:>{len(str(steps))}}/{steps}  {note}")
            return
        if self.bar is None:
            self.bar = importlib.import_module("tqdm").tqdm(
                total=steps,
                initial=step - 1,
                file=self.stream,
                bar_format=BAR,
                ncols=self.columns,
                # On a terminal of unknown size tqdm assumes that there is no room.
                nrows=shutil.get_terminal_size().lines,
                leave=False,
            )
        self.note = note or self.note
        self.bar.set_postfix_str(self.note, refresh=False)
        self.bar.update(step - self.bar.n)
        if note:
            self.bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def printable(text: str) -> str:
    """The text without control characters, which a model that has learned little may generate."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
