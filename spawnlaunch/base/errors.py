"""Errors that are the user's to mend: one line, exit status 2, no traceback."""

WRONG_USE = 2  # the exit status of a UsageError
MOST_CHARS = 4000  # a screenful or two; one word of a command line may have 128 KiB (execve(2))


class UsageError(Exception):
    """What was asked for cannot be done as asked.

    The message is one line: what was seen, why it cannot be, and what to type.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class FlagsError(UsageError):
    """Flags that are wrong wherever they are read.

    All tasks of a job have the same flags, so each of them raises it.
    """


def one_line(text: str) -> str:
    """The text as one printable line; what was typed or exported may be part of it.

    What cannot be printed is written as an escape: a line break, a byte that is no UTF-8, what a
    terminal takes for a command. Of a very long text the beginning and the end are kept.
    """
    if len(text) > MOST_CHARS:
        text = f"{text[: MOST_CHARS // 2]} ... {text[-MOST_CHARS // 2 :]}"
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte, as os.fsdecode has it
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
