"""Command lines: a Request, a page, or one line that names what was seen."""

import os
import sys
from random import Random

from spawnlaunch import cli, flags
from spawnlaunch.errors import UsageError, one_line
from spawnlaunch.flags import Request
from tests.fuzz.engine import Subject, explained, once_in, plain_line, some
from tests.fuzz.values import slip, text

NAMES = [*flags.SPELLINGS]
PROGRAMS = [
    *([], [], ["--"], ["--", "--steps", "1"], [__file__], [__file__, "--nproc", "x"]),
    *(["-m", "json.tool"], ["--no-python", "true"], ["missing.py"], ["--no-python", "no such"]),
]
SEEN_CHARS = 8  # of a word, that an error must show


def draw(random: Random) -> list[str]:
    words: list[str] = []
    for _ in range(random.choice([0, 1, 1, 2, 3, 5, 9])):
        words += flag(random)
    words += random.choice(PROGRAMS)
    words += some(random, [text(random)], 2)
    if once_in(random, 30):
        random.shuffle(words)
    if once_in(random, 300):
        words += ["--quiet"] * 10_000
    return words


def flag(random: Random) -> list[str]:
    """A flag with its value, in one word or in two, rightly or not."""
    name = random.choice(NAMES)
    if once_in(random, 10):
        name = name.replace("-", "_").replace("_", "-", 2)
    if once_in(random, 15):
        name = slip(random, name)
    if once_in(random, 12) or takes_none(name):
        return [name] if random.random() < 0.9 else [f"{name}={text(random)}"]
    return random.choice([[name, text(random)], [f"{name}={text(random)}"]])


def takes_none(name: str) -> bool:
    flag = flags.spelt(name)
    return flag is not None and flag.alone is not None


def judge(words: list[str]) -> None:
    found: Request | BaseException
    try:
        found = cli.parse(words, {}, sys.executable)
    except (UsageError, flags.Page) as ended:
        found = ended
    if isinstance(found, UsageError):
        plain_line(str(found))
        assert shows(str(found), words), f"{found} shows no word"
    elif isinstance(found, flags.Page):
        assert str(found).startswith(("usage: ", "spawnlaunch "))
    else:
        assert isinstance(found, Request)


def shows(message: str, words: list[str]) -> bool:
    """Whether it shows a flag, or the beginning of another word."""
    pieces = [piece for word in words for piece in (word, *word.split("=", 1))]
    typed = {piece: flags.spelt(piece) for piece in pieces if piece.startswith("-")}
    names = {flag.name if flag else piece.replace("_", "-") for piece, flag in typed.items()}
    starts = {piece[:SEEN_CHARS] for piece in pieces}
    shown = {one_line(start) for start in starts if start} | {
        repr(start)[1:-1] for start in starts if start
    }
    return "an empty word" in message or any(piece in message for piece in names | shown)


def judge_real(words: list[str]) -> None:
    size = sum(len(os.fsencode(word)) + 9 for word in words)
    if size < 1 << 17 and not {"-h", "--help", "--version"} & set(words):
        explained(words, {})


CLI = Subject(draw, judge, judge_real)
