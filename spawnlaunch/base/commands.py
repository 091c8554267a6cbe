"""The parser, pages and error lines of the commands beside the launcher: top, report, bench, ..."""

import argparse
import contextlib
import errno
import os
import signal
import sys
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser of the arguments after `spawnlaunch WORD`; it shows its description unchanged."""

    def __init__(self, name: str, description: str | None, **options: Any) -> None:
        super().__init__(
            prog=name,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )
        self.name = name

    def print_help(self, _: object = None) -> NoReturn:
        """Print the help page and exit; the status is 74 where it cannot be written."""
        raise SystemExit(print_page(self.format_help(), self.name))

    def error(self, message: str) -> NoReturn:
        print_error(f"{message}; run {self.prog} --help", self.name)
        raise SystemExit(2)


def print_page(text: str, program: str, *, is_closed: bool = False) -> int:
    """Write the text and a line break to stdout, and return the exit status.

    If the reader closes its end, SIGPIPE ends this process, as it ends other programs. `is_closed`:
    descriptor 1 was closed when this process started, and may be any file by now.
    """
    with contextlib.suppress(OSError):  # a sandbox may refuse it
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        if is_closed or sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed")
        data = f"{text}\n".encode(sys.stdout.encoding, "backslashreplace")
        while data:
            data = data[os.write(1, data) :]
    except OSError as error:
        why = f"cannot write to stdout: {error.strerror}"
        print_error(f"{why}; name a file that can be written: >FILE", program)
        return os.EX_IOERR
    return 0


def print_error(message: str, program: str, kind: str = "error") -> None:
    """Write a message to stderr; where that is closed or full, only the exit status shows it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            os.write(2, f"{program}: {kind}: {message}\n".encode(errors="backslashreplace"))
