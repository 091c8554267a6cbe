"""Any command line is a Request, a page, or one line that names what was seen."""

import os
import sys
import tempfile

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from spawnlaunch.base.errors import UsageError, one_line
from spawnlaunch.cli import flags, parsing
from spawnlaunch.cli.flags import Request
from tests.support.answers import bounded, explained, plain_line
from tests.support.examples import examples, nightly
from tests.support.launching import REPORTER
from tests.support.texts import TEXTS, slips
from tests.world.any_environment import Case, cases, made

PROGRAMS = [
    *([], [], ["--"], ["--", "--steps", "1"], [__file__], [__file__, "--nproc", "x"]),
    *(["-m", "json.tool"], ["--no-python", "true"], ["missing.py"], ["--no-python", "no such"]),
]
SEEN_CHARS = 8  # of a word, that an error must show
MOST_BYTES = 1 << 17  # of a word or a variable, which the kernel takes


@st.composite
def flag_words(draw: DrawFn) -> list[str]:
    """A flag with its value, in one word or in two, rightly or not."""
    names = st.sampled_from([*flags.SPELLINGS])
    name = draw(names | names | names.map(lambda name: name.replace("-", "_")) | slips(names))
    flag = flags.spelt(name)
    if flag is not None and flag.bare_value is not None and draw(st.integers(0, 9)):
        return [name]
    value = draw(TEXTS)
    return draw(st.sampled_from([[name, value], [f"{name}={value}"]]))


@st.composite
def command_lines(draw: DrawFn) -> list[str]:
    """Some flags and a program, mostly in this order."""
    words = [word for flag in draw(st.lists(flag_words(), max_size=5)) for word in flag]
    words += draw(st.sampled_from(PROGRAMS)) + draw(st.lists(TEXTS, max_size=2))
    return words if draw(st.integers(0, 20)) else draw(st.permutations(words))


def is_answered(words: list[str]) -> None:
    found: Request | BaseException
    try:
        with bounded():
            found = parsing.parse(words, {}, sys.executable)
    except (UsageError, flags.Page, flags.NoWords) as ended:
        found = ended
    if isinstance(found, UsageError):
        plain_line(str(found))
        assert shows(str(found), words), f"{found} shows no word"
    elif isinstance(found, (flags.Page, flags.NoWords)):
        assert isinstance(found, flags.Page) or not words
        assert str(found).startswith(("usage: ", "spawnlaunch "))
    else:
        assert isinstance(found, Request)


def shows(message: str, words: list[str]) -> bool:
    """Whether it shows a flag, or the beginning of another word."""
    pieces = [piece for word in words for piece in (word, *word.split("=", 1))]
    pieces += [word[:2] for word in words if word[:1] == "-" != word[1:2]]  # -r3 is -r 3
    typed = {piece: flags.spelt(piece) for piece in pieces if piece.startswith("-")}
    names = {flag.name if flag else piece.replace("_", "-") for piece, flag in typed.items()}
    starts = {piece[:SEEN_CHARS] for piece in pieces}
    shown = {one_line(start) for start in starts if start} | {
        repr(start)[1:-1] for start in starts if start
    }
    return "an empty word" in message or any(piece in message for piece in names | shown)


test_any_command_line_is_answered = examples(150, 600)(given(command_lines())(is_answered))
test_thousands_of_command_lines = nightly(given(command_lines())(is_answered))


def test_ten_thousand_flags_are_read() -> None:
    is_answered(["--quiet"] * 10_000)


def is_explained(case: Case) -> None:
    with tempfile.TemporaryDirectory() as directory:
        environ = made(case, directory)
        try:
            sizes = [len(os.fsencode(each)) for each in (*case.words, *environ.values())]
        except UnicodeEncodeError:  # no program can be given these
            return
        if max(sizes, default=0) < MOST_BYTES and not {"-h", "--help", "--version"} & {*case.words}:
            explained(case.words, environ)


COMMANDS = command_lines().map(lambda words: Case(words, {}, {})) | cases().map(
    lambda case: case._replace(words=[*case.words, str(REPORTER)])
)
test_any_command_is_explained_or_refused_in_one_line = examples(10, 50)(
    given(COMMANDS)(is_explained)
)
test_hundreds_of_commands = nightly(given(COMMANDS)(is_explained), 1000)
