"""Errors that are the user's to mend: one line, exit status 2, no traceback."""


class UsageError(Exception):
    """What was asked for cannot be done as asked.

    The message is one line: what was seen, why it cannot be, and what to type.
    """
