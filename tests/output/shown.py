r"""What several workers write at random, as one screen shows it: is every byte accounted for?

A case is a list of chunks, each of one of three workers, and each worker's text has letters of its
own among the bytes that mean something: \n, \r, an escape, halves of UTF-8 characters.
"""

import random
import re
from collections.abc import Sequence

from spawnlaunch.output.lines import Screen, Stream

LETTERS = (b"abc", b"uvw", b"xyz")
COMMON = (b"\n", b"\n", b"\r", b"\r", b"\r\n", b"\x1b[31m", b"\xc3", b"\xc3\xa4", b"\0", b"%")
PREFIXES = tuple(f"<{i}>".encode() for i in range(len(LETTERS)))

Case = list[tuple[int, bytes]]


def draw(rng: random.Random) -> Case:
    """A case; some have chunks of a byte each, some hardly an end of a line."""
    longest = rng.choice((1, 4, 30))
    rare = rng.choice((0.1, 0.5, 0.9))  # how much of it are letters
    return [
        (i, b"".join(_piece(rng, i, rare) for _ in range(rng.randint(1, longest))))
        for i in (rng.randrange(len(LETTERS)) for _ in range(rng.randint(1, 40)))
    ]


def _piece(rng: random.Random, i: int, rare: float) -> bytes:
    if rng.random() < rare:
        return bytes([rng.choice(LETTERS[i])])
    return rng.choice(COMMON)


def show(case: Case) -> bytes:
    """What the screen gets."""
    screen = Screen()
    streams = [Stream(prefix, screen) for prefix in PREFIXES]
    fed = [streams[i].feed(chunk) for i, chunk in case]
    return b"".join((*fed, *(stream.finish() for stream in streams)))


def fault(case: Case) -> str:
    """What is wrong with what the screen gets; "" for nothing."""
    written, said = show(case), [b""] * len(PREFIXES)
    for i, chunk in case:
        said[i] += chunk
    return difference(said, LETTERS, PREFIXES, written) or _excess(case, written)


def difference(
    said: Sequence[bytes], letters: Sequence[bytes], prefixes: Sequence[bytes], written: bytes
) -> str:
    """What is wrong with a screen that shows what several have said; "" for nothing."""
    got: list[list[bytes]] = [[] for _ in prefixes]
    if written and not written.endswith(b"\n"):
        return "the last line has no end"
    begins = re.compile(b"\r*(?:" + b"|".join(b"(%b)" % re.escape(p) for p in prefixes) + b")")
    for line in written.split(b"\n")[:-1]:
        found = begins.match(line)
        if not found:
            return f"a line that nobody wrote: {line!r}"
        rank = (found.lastindex or 0) - 1
        text = line.replace(prefixes[rank], b"")
        if any(set(own) & set(text) for i, own in enumerate(letters) if i != rank):
            return f"a line of several: {line!r}"
        got[rank].append(text)
    for i, text in enumerate(said):
        wrong = _difference(text, got[i])
        if wrong:
            return f"{i} wrote {text!r}, and {got[i]} came: {wrong}"
    return ""


def _difference(said: bytes, lines: list[bytes]) -> str:
    """Other than that lines with a \r may be broken, where somebody else came in."""
    if b"".join(lines) != said.replace(b"\n", b""):
        return "other bytes"
    ends = said.count(b"\n") + bool(said) - said.endswith(b"\n")
    if b"\r" not in said and len(lines) != ends:
        return "other lines"
    return "" if ends <= len(lines) else f"less than {ends} lines"


def _excess(case: Case, written: bytes) -> str:
    """More than the text, and for each line and chunk a prefix and a newline."""
    said = sum(len(chunk) for _, chunk in case)
    begun = sum(chunk.count(b"\n") + chunk.count(b"\r") + 1 for _, chunk in case) + len(PREFIXES)
    most = said + begun * (len(PREFIXES[0]) + 1)
    return "" if len(written) <= most else f"{said} bytes became {len(written)}"
