r"""From the chunks that workers write to lines with a prefix: whole, in order, none lost.

A line goes out when its newline has come. Three kinds are not as simple:

- The last line of a stream may have no newline. It goes out when the stream ends, and gets one.
- A progress bar writes its line again and again, a \r before or after each time. It goes out as it
  grows and overwrites itself on a terminal, as it would without us. If another worker has written
  something in between, a newline is put there, and the bar stands anew below.
- A line of more than MOST_BYTES is broken into several.
"""

import re

MOST_BYTES = 1 << 20

_RETURN = re.compile(rb"\r(?!\n|\Z)")  # one that something follows on the same line


class Screen:
    """One output that several streams share: it knows whose bar stands on its last line."""

    def __init__(self) -> None:
        self.bar: Stream | None = None

    def leave_bar(self) -> bytes:
        """What to write before anything that does not continue the bar on the last line."""
        left, self.bar = self.bar, None
        return b"" if left is None else b"\n"


class Stream:
    """What one worker writes to one of its streams."""

    def __init__(self, prefix: bytes, screen: Screen) -> None:
        self._prefix = prefix
        self._screen = screen
        self._rest = b""  # of the line without a newline yet: all that is not shown, and the bar
        self._shown = 0  # how many bytes of it are on the screen already

    def feed(self, chunk: bytes) -> bytes:
        """What to write for a chunk that the worker wrote."""
        text = self._rest + chunk
        head, newline, self._rest = text.rpartition(b"\n")
        written = b""
        if newline:
            written = self._put(head) + b"\n"
            self._screen.bar, self._shown = None, 0
        if b"\r" in self._rest:
            return written + self._grow_bar()
        if len(self._rest) > MOST_BYTES:
            return written + self.finish()
        return written

    def finish(self) -> bytes:
        """What to write when the stream has ended."""
        if not self._rest:
            return b""
        written = self._put(self._rest) + b"\n"
        self._rest, self._shown, self._screen.bar = b"", 0, None
        return written

    def _grow_bar(self) -> bytes:
        """Show the bar as far as it has come; remember only what shows it anew."""
        written = self._put(self._rest)
        self._screen.bar = self
        self._rest = self._rest[max(self._rest.rfind(b"\r"), 0) :]
        self._shown = len(self._rest)
        return written

    def _put(self, text: bytes) -> bytes:
        """The lines of `text`, the last one still open; of the first, `_shown` bytes are there."""
        if self._shown and self._screen.bar is self:
            shown, more = text[: self._shown], text[self._shown :]
            anew = shown.endswith(b"\r") and more and not more.startswith(b"\r")
            return (self._prefix if anew else b"") + self._prefixed(more)
        start = b"" if text.startswith(b"\r") else self._prefix
        return self._screen.leave_bar() + start + self._prefixed(text)

    def _prefixed(self, text: bytes) -> bytes:
        """A prefix at the beginning of each further line, and wherever a line is written anew."""
        if b"\r" in text:
            text = _RETURN.sub(b"\r" + self._prefix, text)
        return text.replace(b"\n", b"\n" + self._prefix)
