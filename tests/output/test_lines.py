r"""Lines from chunks, whatever the chunks: whole, in order, none lost."""

import random
import re
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spawnlaunch.output import lines
from spawnlaunch.output.lines import Screen, Stream
from tests.output import shown


def streams(n: int) -> list[Stream]:
    screen = Screen()
    return [Stream(f"[{i}] ".encode(), screen) for i in range(n)]


LONG = b"x" * (lines.MOST_BYTES + 1)
# What is fed to the first worker's stream, or to the second's, and what then goes out.
FED = {
    "a line goes out whole when its newline has come": [
        (0, b"one", b""), (0, b" line\nand", b"[0] one line\n"),
        (0, b" two\nthree\n", b"[0] and two\n[0] three\n"),
    ],
    "a bar goes out as it grows and keeps its prefix": [
        (0, b"\r 10%", b"\r[0]  10%"), (0, b"\r 20%", b"\r[0]  20%"),
        (0, b"\r 30%\n", b"\r[0]  30%\n"), (0, b"done\n", b"[0] done\n"),
    ],
    "a bar may write its return at the end": [
        (0, b"10%\r", b"[0] 10%"), (0, b"20%\r", b"\r[0] 20%"), (0, b"20%\n", b"\r[0] 20%\n"),
    ],
    "a bar that another worker interrupts stands anew below": [
        (0, b"\r 10%", b"\r[0]  10%"), (1, b"hello\n", b"\n[1] hello\n"),
        (0, b"\r 20%", b"\r[0]  20%"),
    ],
    "the newline that interrupts a bar may be its own": [
        (0, b"\r100%", b"\r[0] 100%"), (1, b"hello\n", b"\n[1] hello\n"), (0, b"\n", b""),
        (0, b"done\n", b"[0] done\n"),
    ],
    "two bars take turns": [(0, b"\ra", b"\r[0] a"), (1, b"\rb", b"\n\r[1] b")],
    "lines that end as on a terminal are lines": [
        (0, b"one\r\ntwo\r\n", b"[0] one\r\n[0] two\r\n"), (0, b"one\r", b"[0] one"),
        (0, b"\n", b"\r\n"),
    ],
    "a line without an end is broken": [(0, LONG, b"[0] " + LONG + b"\n")],
}  # fmt: skip


@pytest.mark.parametrize("name", FED)
def test_what_goes_out_of_what_is_fed(name: str):
    both = streams(2)
    assert [both[i].feed(chunk) for i, chunk, _ in FED[name]] == [out for *_, out in FED[name]]


CHUNKS = st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=12)), max_size=40)


@given(CHUNKS)
def test_without_bars_every_line_comes_whole_and_in_its_workers_order(chunks):
    them = streams(3)
    said = dict.fromkeys(range(3), b"")
    written = b""
    for i, chunk in chunks:
        chunk = chunk.replace(b"\r", b"?")
        said[i] += chunk
        written += them[i].feed(chunk)
    written += b"".join(stream.finish() for stream in them)
    for i, text in said.items():
        mark = f"[{i}] ".encode()
        got = [line[len(mark) :] for line in written.split(b"\n") if line.startswith(mark)]
        want = text.split(b"\n")
        assert got == (want if want[-1] else want[:-1])


@given(st.lists(st.sampled_from([b"\r1%", b"\r22%", b"x\n", b"33%\r", b"\n", b"y"]), max_size=20))
def test_a_worker_alone_on_the_screen_is_shown_as_it_wrote(chunks):
    (stream,) = streams(1)
    written = b"".join(map(stream.feed, chunks)) + stream.finish()
    plain = b"".join(chunks)
    if plain and not plain.endswith(b"\n"):
        plain += b"\n"
    assert written.replace(b"[0] ", b"") == plain


def test_what_one_writes_without_an_end_is_written_once():
    them = streams(2)
    piece = b"x" * (1 << 16)
    written = len(them[0].feed(b"\r")) + len(them[1].feed(b"\r"))
    for _ in range(64):
        written += sum(len(stream.feed(piece)) for stream in them)
    assert 128 * len(piece) <= written < 129 * len(piece)


PIECES = (*shown.COMMON, b"\r", b"a", b"\r\n\r", b"\xf0\x9f", b"x\r")


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.integers(1, 4000)), min_size=1, max_size=4),
       st.sampled_from((1, 100, 1 << 16)))  # fmt: skip
def test_each_byte_costs_the_same_whatever_it_is(pieces: list[tuple[bytes, int]], size: int):
    """Steps are calls, and the bytes that a method of theirs goes over; a pattern's are unknown."""
    text, steps, (stream,) = b"".join(piece * n for piece, n in pieces)[:8000], 0, streams(1)

    def see(_: FrameType, event: str, called: Any) -> None:
        nonlocal steps
        whose = getattr(called, "__self__", None) if event == "c_call" else None
        goes_over = isinstance(whose, bytes | bytearray) and called.__name__ != "endswith"
        assert not isinstance(whose, re.Pattern)
        steps += 1 + (len(whose) if goes_over else 0)

    sys.setprofile(see)
    try:
        for i in range(0, len(text), size):
            stream.feed(text[i : i + size])
        stream.finish()
    finally:
        sys.setprofile(None)
    assert steps <= 40 * (len(text) + 1)


def test_random_chunks_of_several_workers_are_accounted_for():
    seed = 11
    for number in range(1000):
        case = shown.draw(random.Random(f"{seed}:{number}"))
        assert not shown.fault(case), f"seed {seed}, case {number}"
