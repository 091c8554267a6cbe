"""Messages of launchers and hubs that are drawn: of any kind, with something extreme in them."""

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from spawnlaunch.base.errors import MOST_CHARS
from spawnlaunch.multinode import messages
from spawnlaunch.multinode.messages import Hello
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


def _plain(annotation: str) -> SearchStrategy[Any]:
    """What stands there now and then; else something extreme of the right kind."""
    if annotation in ("str", "Name"):
        return st.just("node1") | st.sampled_from(TEXTS)
    if annotation == "bool":
        return st.booleans()
    if annotation in ("float", "Seconds"):
        return st.sampled_from([0.0, 1.0, 1e12, -1.0])
    if annotation.startswith("tuple"):
        return st.sampled_from([[], [[0, 0]], [[2, -9], [10**15, 1]], ["a"], [["--nnodes", "3"]]])
    if annotation.startswith("Cause"):
        lost = Cause("lost", "x" * 300)._asdict()
        return st.sampled_from([None, {"kind": "failure"}, lost])
    return st.just(1) | st.sampled_from(INTS)


@st.composite
def any_messages(draw: DrawFn) -> dict[str, Any]:
    """A message of any kind and direction, in which something is not as it should be."""
    kind = draw(st.sampled_from([Hello, *messages.KINDS.values()]))
    said: dict[str, Any] = {"is": kind.__name__.lower()}
    for name, annotation in kind.__annotations__.items():
        said[name] = draw(_plain(annotation))
    for name in draw(st.lists(st.sampled_from(sorted(said)), max_size=2)):
        said[name] = draw(ANYTHING)
    for name in draw(st.lists(st.sampled_from(sorted(said)), max_size=1)):
        del said[name]
    return said | draw(st.dictionaries(st.sampled_from(TEXTS), ANYTHING, max_size=1))


def as_bytes(said: Any) -> bytes:
    """The message as JSON."""
    return json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass")
