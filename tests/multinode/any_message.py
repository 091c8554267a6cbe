"""Reports of launchers that are drawn, with something extreme in them."""

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from spawnlaunch.base.errors import MOST_CHARS
from spawnlaunch.multinode.messages import FINISHED, READY, RUNNING, STOPPING, UNABLE, Report
from spawnlaunch.outcome.failures import Cause

MOST_SHOWN = 10 * MOST_CHARS + 100  # of a line; each character may be an escape
# On both sides of what is a signal, a port, a count, a number in JSON, and an int of Python.
INTS = [
    sign * (limit + by)
    for limit in (0, 64, 255, 65535, 2**31, 10**9, 10**15, 2**53, 2**63, 10**400)
    for by in (-1, 0, 1)
    for sign in (1, -1)
]
TEXTS = [
    *("", "a", "node2", "9" * 5000, "node" + "9" * 16000, "x" * 255, "x" * 256, "x" * 20000, "é"),
    *("\0", "a\0b", "\x1b[2J\x1b]0;title\x07", "a\nb", "\r", "\u2028", "\u202e", "\ud800", "%s{0}"),
    *("../../etc", "a b", "-", "\udcff", "\U0010ffff", "\x9b2J", "10.0.0.1", "localhost"),
]
OTHERS: list[Any] = [
    *(None, True, False, 0.5, -0.5, float("nan"), float("inf"), 1e308, 1e12, {}, [], [[]], {"": 1}),
    *([["a", "b", "c"]], [[1, "x"]], [["--grace", "\x1b[2J" * 300]] * 3),
    {"kind": "failure", "rank": 10**15},
]
LONG: list[Any] = [
    *([0] * 65536, [[0, 0]] * 65536, [["--nnodes", "5"]] * 20000, ["x"] * 65537),
    [["--grace", "\x1b[2J" * 3000]] * 3,
]
ANYTHING = st.one_of(
    *3 * [st.one_of(*map(st.sampled_from, (INTS, TEXTS, OTHERS)))], st.text(), st.sampled_from(LONG)
)


GOOD: dict[str, list[Any]] = {  # by annotation
    "str": ["default", "--nnodes=3 --grace=30", *TEXTS],
    "Name": ["node1", *TEXTS],
    "bool": [True, False],
    "Seconds": [0.0, 1.0, 1e12, -1.0],
    "State": [READY, RUNNING, STOPPING, FINISHED, UNABLE],
    "Cause | None": [None, Cause("unable", "x" * 255, code=2, words="no GPU"), Cause("hang")],
    "tuple[Failed, ...]": [[], [[Cause("failure", rank=1, code=-9), 0.5, 0.1]], [[]]],
    "tuple[tuple[Rank, Code], ...]": [[], [[0, 0]], [[2, -9], [10**15, 1]], ["a"]],
    "tuple[Where, ...]": [[], [["is here", "are here", [[0, 1]]]], [["a"]]],
    "tuple[Reached, ...]": [[], [["0", 1, "x", "", "train.py", 0.5, [[0, 10**9]], False]]],
}


@st.composite
def any_reports(draw: DrawFn, **given: Any) -> list[Any]:
    """A Report with these fields; some others are not as they should be."""
    usual = {**Report("node1", f"who{draw(st.integers(0, 9))}", 1)._asdict(), **given}
    for name in draw(st.lists(st.sampled_from(sorted(usual)), max_size=3)):
        values = GOOD.get(Report.__annotations__[name], [0, 1, *INTS])
        usual[name] = draw(st.sampled_from(values) | st.sampled_from(values) | ANYTHING)
    row = [*usual.values()]
    return draw(st.sampled_from([row, row, row, row[1:], [*row, 0]]))


def as_bytes(said: Any) -> bytes:
    """The message as JSON."""
    return json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass")
