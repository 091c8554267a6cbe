"""What a person sees: lines, and on a terminal one line that is redrawn in place."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TextIO

from .errors import tell

COLUMNS = "SPAWNLAUNCH_TERMINAL_COLUMNS"


def terminal_columns(stream: TextIO, environ: Mapping[str, str]) -> int | None:
    """How many columns a line on ``stream`` may have; None where no terminal shows it.

    A launcher that reads its workers through pipes says how many its own terminal has left.
    """
    if stream.isatty():
        return shutil.get_terminal_size().columns
    told = environ.get(COLUMNS, "")
    return int(told) if told.isdecimal() else None


class Screen:
    """Lines on a stream; on a terminal of some columns a bar, tqdm's, where that is installed.

    Without a stream nothing is said, which is how every rank but 0 reports. One that can no longer
    be written to, such as a pipe whose reader has left, ends no training either.
    """

    def __init__(self, stream: TextIO | None, columns: int | None = None) -> None:
        self.stream = stream
        self.columns = columns if find_spec("tqdm") else None
        self.note = ""
        self.bar: Any = None

    def line(self, text: str) -> None:
        """A line that stays; on a terminal it takes the place of the bar."""
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
        """Step ``step`` of ``steps`` is done; a log has a line for it only if there is a note."""
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
        """No more bar."""
        if self.bar is not None:
            with self._on_stream():
                self.bar.close()
            self.bar = None

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Write in here; where that fails, it is said once, and nothing is written any more."""
        try:
            yield
        except OSError as error:
            assert self.stream is not None
            # What the stream still holds goes nowhere, or its last flush would fail as well.
            with open(os.devnull, "w", encoding="ascii") as nowhere:
                os.dup2(nowhere.fileno(), self.stream.fileno())
            self.stream = self.bar = None
            tell(f"train: cannot write to stdout: {error.strerror}; the run goes on without it\n")


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
        # tqdm takes a terminal that does not know its size for one without room; this says 24.
        nrows=shutil.get_terminal_size().lines,
        leave=False,
    )


def printable(text: str) -> str:
    """The text without control characters, which a model that has learned little may draw."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
