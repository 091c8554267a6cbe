"""Read numbers and files that a user or a variable names, within bounds.

A variable may hold 5,000 digits, which ``int`` refuses with an error of its own, and a file may be
a pipe that never ends.
"""

import os
from stat import S_ISREG

from spawnlaunch.base import errors, machine

MAX_DIGITS = 18  # a number of so many digits still fits 64 bits
EXCERPT_CHARS = 60  # of a value that cannot be read, shown in an error
MOST_BYTES = 1 << 24  # of a file: the names of 100,000 hosts are a tenth of it
CHUNK = 1 << 16  # more than a file of sysfs can hold, which is a page
OPTIONS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def is_number(text: str, digits: int = MAX_DIGITS) -> bool:
    """Whether ``int`` reads the text, which has no sign and no digits of other scripts.

    >>> is_number("007"), is_number("-1"), is_number("²"), is_number("9" * 5000)
    (True, False, False, False)
    """
    return text.isascii() and text.isdigit() and len(text) <= digits


def are_threads(text: str) -> bool:
    """Whether OMP_NUM_THREADS may have this value: a number above 0 for each level of loops.

    >>> are_threads("8"), are_threads(" 4, 2"), are_threads("0"), are_threads("4x"), are_threads("")
    (True, True, False, False, False)
    """
    entries = (entry.strip().removeprefix("+") for entry in text.split(","))
    return all(is_number(entry) and int(entry) > 0 for entry in entries)


def excerpt(text: str, position: int = 0) -> str:
    """Return the text, quoted; of a long text the part around `position`."""
    start = max(0, position - EXCERPT_CHARS // 2)
    end = start + EXCERPT_CHARS
    before, after = "..." if start else "", "..." if end < len(text) else ""
    return f"{before}{text[start:end]!r}{after}"


def file_text(path: str) -> str | None:
    """The text of a file; None where there is none that can be read, or it exceeds MOST_BYTES.

    It does not wait for a pipe or a device.

    >>> file_text("/no/such/file"), file_text("/dev/zero"), file_text("a\\0b")
    (None, None, None)
    """
    try:
        descriptor = machine.open(path, OPTIONS)
    except (OSError, ValueError):  # ValueError: a name with a null byte
        return None
    parts, remaining = [], MOST_BYTES
    try:
        while part := machine.read(descriptor, CHUNK):
            parts.append(part)
            remaining -= len(part)
            if remaining < 0:
                return None
    except OSError:  # a KFD file of a device that the control group hides, a directory
        return None
    finally:
        machine.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def end_of_file(path: str, most_bytes: int, begin: int = 0) -> tuple[str, bool] | None:
    """The end of a regular file's text, from byte `begin` on; None where there is no file.

    It has at most `most_bytes`. The second value: whether the text begins at `begin`.
    """
    try:
        descriptor = machine.open(path, OPTIONS)
    except (OSError, ValueError):
        return None
    try:
        if not S_ISREG(machine.fstat(descriptor).st_mode):
            return None
        size = machine.fstat(descriptor).st_size
        content = machine.pread(descriptor, most_bytes, max(begin, size - most_bytes))
    except OSError:
        return None
    finally:
        machine.close(descriptor)
    return content.decode("utf-8", "replace"), size - begin <= most_bytes


def absolute(path: str, flag: str) -> str:
    """Return the absolute path of a file that a flag names.

    Raises UsageError where there is none, as the working directory has been deleted.
    """
    try:
        here = "" if os.path.isabs(path) else machine.getcwd()
        return os.path.normpath(os.path.join(here, path))
    except FileNotFoundError:
        raise errors.UsageError(
            f"{flag} {path}: the working directory, where it begins, has been deleted; run cd DIR "
            "first, or name it from the root: /..."
        ) from None
