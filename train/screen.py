"""Write a run's output for the user: lines, and on a terminal a bar that is redrawn in place."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TextIO

from .errors import write_stderr

COLUMNS = "SPAWNLAUNCH_TERMINAL_COLUMNS"


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

    Without a stream, as on every rank but 0, it writes nothing. A stream that can no longer be
    written to, such as a pipe without a reader, does not end the training.
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
        # A log in the C locale takes no "é", and a run should not end over that.
        encoding = self.stream.encoding or "ascii"
        text = text.encode(encoding, errors="replace").decode(encoding)
        with self._on_stream():
            if self.bar is not None:
                self.bar.clear()
            print(text, file=self.stream, flush=True)

    def progress(self, step: int, steps: int, note: str = "") -> None:
        """Show that ``step`` of ``steps`` is done; without a bar, print a line for a note only."""
        if self.columns is not None and self.stream is not None:
            with self._on_stream():
                if self.bar is None:
                    self.bar = _tqdm(self.stream, self.columns, step, steps)
                self.note = note or self.note
                self.bar.set_postfix_str(self.note, refresh=False)
                self.bar.update(step - self.bar.n)
                if note:
                    self.bar.refresh()
        elif note:
            self.line(f"step {step:>{len(str(steps))}}/{steps}  {note}")

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            with self._on_stream():
                self.bar.close()
            self.bar = None

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Run a block that writes; after an error, report it once, and write nothing more."""
        try:
            yield
        except OSError as error:
            assert self.stream is not None
            # The stream's buffer goes to /dev/null; else its last flush would fail as well.
            with open(os.devnull, "w", encoding="ascii") as nowhere:
                os.dup2(nowhere.fileno(), self.stream.fileno())
            self.stream = self.bar = None
            write_stderr(
                f"train: cannot write to stdout: {error.strerror}; the run goes on without it\n"
            )


def _tqdm(stream: TextIO, columns: int, step: int, steps: int) -> Any:
    """The bar of tqdm."""
    tqdm = importlib.import_module("tqdm").tqdm
    shape = "{percentage:3.0f}% |{bar:20}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
    return tqdm(
        total=steps,
        initial=step - 1,
        file=stream,
        bar_format=shape,
        ncols=columns,
        # On a terminal of unknown size tqdm assumes that there is no room; shutil returns 24.
        nrows=shutil.get_terminal_size().lines,
        leave=False,
    )


def printable(text: str) -> str:
    """The text without control characters, which a model that has learned little may generate."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
