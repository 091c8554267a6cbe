"""Errors that the user can correct: one line, exit status 2, no traceback."""

WRONG_USE = 2  # the exit status of a UsageError
MOST_CHARS = 4000  # a screenful or two; one word of a command line may have 128 KiB (execve(2))


class UsageError(Exception):
    """A request of the user that cannot be fulfilled.

    The message is one line: what was seen, why it cannot be, and what to use instead.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class FlagsError(UsageError):
    """Flags that are wrong in every task of a job.

    All tasks have the same flags, so each of them raises this error.
    """


def one_line(text: str) -> str:
    """Return the text as one printable line; it may contain the user's flags or variables.

    Unprintable characters are written as escapes: a line break, a byte that is no UTF-8, a control
    character of terminals. Of a very long text the beginning and the end are kept.
    """
    if len(text) > MOST_CHARS:
        text = f"{text[: MOST_CHARS // 2]} ... {text[-MOST_CHARS // 2 :]}"
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte that os.fsdecode could not decode
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
