"""What the programs beside the launcher print: a page on stdout, or one line of what is wrong."""

import contextlib
import os
import signal
import sys


def print_page(text: str, program: str) -> int:
    """Write the text and a line break to stdout; the result is the exit status.

    If the reader goes away, SIGPIPE ends this process, as it ends other programs.
    """
    if sys.stdout is None:  # descriptor 1 was closed at our start, and may be anything by now
        print_error("cannot write to stdout: it is closed", program)
        return os.EX_IOERR
    with contextlib.suppress(OSError):  # a sandbox may refuse it
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    data = f"{text}\n".encode(sys.stdout.encoding, "backslashreplace")
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError as error:
        print_error(f"cannot write to stdout: {error.strerror}", program)
        return os.EX_IOERR
    return 0


def print_error(message: str, program: str, kind: str = "error") -> None:
    """Write a message to stderr; where that is closed or full, only the exit status tells."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            os.write(2, f"{program}: {kind}: {message}\n".encode(errors="backslashreplace"))
