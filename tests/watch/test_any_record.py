"""Whatever a record holds, its page is drawn: well-formed, with nothing raw, and to its end."""

import json
import random
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spawnlaunch.watch import charts, page, story
from tests.watch.conftest import Recorded

ODD = (
    *(float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 1.7976931348623157e308, 5e-324),
    *(10**400, -(10**400), 2**64, -1, 0, 1e-300, None, True),
)
ODD_TEXT = (
    *("\x00", "\x1b[31mred\x1b[0m", "a\r\nb", "\ud800", "\udcff", "\uffff", "\u202e"),
    *("</script>", "]]>", "'\"&<"),
)
SHARES = (0.0, 0.01, 0.1, 0.5)  # of what is replaced


@pytest.fixture(scope="module")
def record(failed_twice: Recorded) -> list[dict[str, Any]]:
    """The lines of a real launch, with one of each kind that it had no reason for."""
    lines = failed_twice.lines
    at = lines[-1]["time"]
    ranks = [0, 1]
    names = ("compute_s", "data_s", "loss", "cpu", "device_use")
    figures = {name: [0.5, 1.5] for name in names}
    where = {"one": "is in f (x.py:3)", "several": "are in f (x.py:3)", "ranks": [0]}
    more = [
        {"kind": "sample", "ranks": ranks, **figures},
        {"kind": "sample", "ranks": ranks, **figures},
        {"kind": "wait_shares", "ranks": ranks, "wait_share": [0.1, 0.2], "late_share": [0.3, 0.0]},
        {"kind": "note", "rank": 1, "note": "waited for", "words": "310 ms of each step"},
        {"kind": "roll", "groups": [where], "words": ["rank 1 is in g"]},
        {"kind": "collective", "rank": 1, "at": at},
    ]
    return [*lines[:-1], *({**line, "time": at} for line in more), lines[-1]]


def replaced(value: Any, numbers: list[Any], texts: list[str], chance: random.Random, share: float):
    """The value with some of its numbers and strings exchanged for others."""
    if isinstance(value, dict):
        return {
            name: each if name == "kind" else replaced(each, numbers, texts, chance, share)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [replaced(each, numbers, texts, chance, share) for each in value]
    if value is None or chance.random() >= share:
        return value
    return chance.choice(texts if isinstance(value, str) else numbers)


def is_drawn(html: str) -> None:
    """What is not style or script is XML, whose places are numbers; nothing raw is in it."""
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e]", html)
    bare = re.sub(r"<!doctype html>\n|<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)
    root = ElementTree.fromstring(bare)
    for one in root.iter():
        for name in ("points", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "viewBox"):
            assert re.fullmatch(r"[-+.,e\d ]*", one.get(name, "")), ElementTree.tostring(one)


odd = st.lists(st.sampled_from(ODD), max_size=3)
numbers = st.lists(st.sampled_from(ODD) | st.floats() | st.integers(), min_size=1)
texts = st.lists(st.sampled_from(ODD_TEXT) | st.text(), min_size=1)


@settings(max_examples=40)
@given(numbers, texts, st.integers(), st.sampled_from(SHARES), odd)
@example([0], ["x"], 0, 0.0, [-1e308, 1e308])  # further from each other than any number
def test_any_numbers_and_strings(
    record: list[dict[str, Any]], tmp_path: Path, numbers: list[Any], texts: list[str], seed: int,
    share: float, ranks: list[Any],
) -> None:  # fmt: skip
    chance = random.Random(seed)
    lines = [replaced(line, numbers, texts, chance, share) for line in record]
    for worker, rank in zip(lines[0]["explain"]["workers"], ranks, strict=False):
        worker["rank"] = rank
    (tmp_path / "a.jsonl").write_text(json.dumps(record[0]) + "\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    found = story.read(str(tmp_path))
    is_drawn(page.page(found))
    if share == 0 and not ranks:
        assert [one.unreadable for one in found.launches] == [{}, {}]


@settings(max_examples=40)
@given(st.binary(), st.integers(0, 400), st.integers(0, 10_000))
def test_any_bytes_anywhere(
    record: list[dict[str, Any]], tmp_path: Path, data: bytes, at: int, more: int
) -> None:
    """A file system that has lost part of a file may have anything there."""
    whole = "\n".join(map(json.dumps, record)).encode()
    place = (at * 97 + more) % len(whole)
    (tmp_path / "a.jsonl").write_text(json.dumps(record[0]) + "\n")
    (tmp_path / "b.jsonl").write_bytes(whole[:place] + data + whole[place + more :])
    is_drawn(page.page(story.read(str(tmp_path))))


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(finite | st.sampled_from([1e308, 1.7976931348623157e308, 5e-324, 1e-300]))
def test_the_end_of_an_axis_is_not_below_what_is_drawn(value: float) -> None:
    end = charts.nice(value)
    assert 0 < end < float("inf")
    assert end >= value
    if value > 1e-290:
        assert end <= 5.1 * value or end == pytest.approx(1.7976931348623157e308)


values = st.lists(finite | st.none() | st.sampled_from(ODD), max_size=400)


@given(values, st.integers(20, 60))
@example([10**400, -(10**400), 0.0], 20)
def test_the_least_and_the_greatest_stay(values: list[Any], most: int) -> None:
    times = [float(i) for i in range(len(values))]
    thin = story.thinned(times, values, most)
    known = [
        (at, float(value))
        for at, value in zip(times, values, strict=True)
        if isinstance(value, (int, float)) and abs(value) <= 1.7976931348623157e308
    ]
    kept = [value for _, value in thin if value is not None and value == value]
    assert len(thin) <= most
    assert [at for at, _ in thin] == sorted({at for at, _ in thin})
    if known:
        assert min(kept) == min(value for _, value in known)
        assert max(kept) == max(value for _, value in known)
    assert (len(known) < len(values)) == (len(kept) < len(thin))
