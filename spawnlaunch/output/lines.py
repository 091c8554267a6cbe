r"""From the chunks that workers write to lines with a prefix: whole, in order, none lost.

A line goes out when its newline has come. Four kinds are not as simple:

- The last line of a stream may have no newline. It goes out when the stream ends, and gets one.
- A progress bar writes its line again and again, a \r before or after each time. It goes out as it
  grows and overwrites itself on a terminal, as it would without us. If another worker has written
  something in between, a newline is put there, and the bar goes on below; if the bar's own newline
  comes next, it is left out.
- A prompt has no newline either. On a terminal it is shown after a moment, like a bar.
- A line of more than MOST_BYTES is broken into several.

Nothing is written twice, and no more than MOST_BYTES and a chunk are kept of a stream. Each byte
is looked at a few times, whatever bytes there are: they must not hold up the process that
supervises.
"""

from __future__ import annotations

MOST_BYTES = 1 << 20


class Screen:
    """An output that several streams share: it knows which stream's bar is on its last line.

    A bar is an unfinished line with the cursor on it: of progress, or a prompt.
    """

    bar: Stream | None = None

    def leave_bar(self) -> bytes:
        """The bytes to write before any output that does not continue the bar on the last line."""
        bar, self.bar = self.bar, None
        return b"" if bar is None else b"\n"


class Stream:
    """The output of one worker to one of its streams."""

    def __init__(self, prefix: bytes, screen: Screen) -> None:
        self._prefix = prefix
        self._screen = screen
        self._unshown = bytearray()  # the part of the last line that is not shown
        self._returned = False  # whether all of that is \r; else none of it is
        self._is_bar = False  # the beginning of the last line is shown

    def feed(self, chunk: bytes) -> bytes:
        """The bytes to write for a chunk that the worker wrote."""
        end = chunk.rfind(b"\n") + 1
        written = self._lines(self._take() + chunk[:end]) if end else b""
        rest = chunk[end:]
        if not rest:
            return written
        if self._is_bar or self._returned or b"\r" in rest:
            text = rest.rstrip(b"\r")  # the next byte after a \r tells whether it ends the line
            if text or (self._unshown and not self._returned):
                written += self._grow_bar(self._take() + text)
                rest = rest[len(text) :]
        self._unshown += rest
        self._returned = self._unshown.endswith(b"\r")
        return written + self.finish() if len(self._unshown) > MOST_BYTES else written

    def reveal(self) -> bytes:
        """The bytes to write for the beginning of a line, when the rest does not come."""
        return self._grow_bar(self._take()) if self._unshown and not self._returned else b""

    def finish(self) -> bytes:
        """The bytes to write when the stream has ended."""
        if self._unshown or self._screen.bar is self:
            return self._lines(self._take() + b"\n")
        return b""

    def _take(self) -> bytes:
        if not self._unshown:
            return b""
        taken = bytes(self._unshown)
        self._unshown.clear()
        self._returned = False
        return taken

    def _lines(self, text: bytes) -> bytes:
        """Show lines that have their ends."""
        if self._is_bar and self._screen.bar is not self and text.startswith(b"\n"):
            text = text[1:]  # `leave_bar` has written that, as another's line came in between
        self._is_bar = False
        if not text:
            return b""
        written = self._begin(text) + self._prefixed(text[:-1]) + b"\n"
        self._screen.bar = None
        return written

    def _grow_bar(self, text: bytes) -> bytes:
        """Show a bar as far as it has come."""
        written = self._begin(text) + self._prefixed(text)
        self._is_bar, self._screen.bar = True, self
        return written

    def _begin(self, text: bytes) -> bytes:
        """The bytes before `text`: none where it continues the bar on the last line."""
        if self._screen.bar is self:
            return b""
        written_anew = text[:1] == b"\r" and text.lstrip(b"\r")[:1] not in (b"", b"\n")
        # Then the prefix comes after the \r.
        return self._screen.leave_bar() + (b"" if written_anew else self._prefix)

    def _prefixed(self, text: bytes) -> bytes:
        """The text with a prefix at each further line, and wherever a line is written again."""
        if b"\r" in text:
            first, *others = text.split(b"\r")
            anew = (part if part[:1] in (b"", b"\n") else self._prefix + part for part in others)
            text = b"\r".join((first, *anew))
        return text.replace(b"\n", b"\n" + self._prefix)
