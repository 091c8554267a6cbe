"""The error with which a call is refused."""

import os


def refused(number: int, path: str | None = None) -> OSError:
    """As Python has it: BlockingIOError and the like by its number."""
    return OSError(number, os.strerror(number), path)
