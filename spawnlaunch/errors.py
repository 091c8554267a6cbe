"""Errors that are the user's to mend: one line, exit status 2, no traceback."""


class UsageError(Exception):
    """What was asked for cannot be done as asked.

    The message is one line: what was seen, why it cannot be, and what to type. What was seen may
    hold anything, so a line break in it is written as an escape.
    """

    def __init__(self, message: str) -> None:
        super().__init__("\\n".join(message.splitlines()))
