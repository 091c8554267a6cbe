"""A record of ours is what typing's named tuple is."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.base import records


class Ours(records.NamedTuple):
    host: str
    port: int = 29500
    words: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return f"{self.host}:{self.port}"


class Theirs(typing.NamedTuple):
    host: str
    port: int = 29500
    words: tuple[str, ...] = ()


class Nothing(records.NamedTuple):
    """Without fields."""


def outcome(make, *args, **kwargs) -> object:
    try:
        return tuple(make(*args, **kwargs))
    except TypeError:
        return "refused"


@given(
    st.lists(st.integers(), max_size=4),
    st.dictionaries(st.sampled_from(("host", "port", "words", "other")), st.integers(), max_size=3),
)
def test_it_is_made_and_refused_alike(args: list, kwargs: dict) -> None:
    assert outcome(Ours, *args, **kwargs) == outcome(Theirs, *args, **kwargs)


def test_it_has_the_same_methods() -> None:
    ours, theirs = Ours("node0", words=("a",)), Theirs("node0", words=("a",))
    assert ours == theirs
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(port=1) == theirs._replace(port=1)
    assert Ours._fields == Theirs._fields
    assert ours.where == "node0:29500"
    assert Nothing() == ()
    match ours:
        case Ours(host, 29500, words):
            assert (host, words) == ("node0", ("a",))
        case _:
            pytest.fail("it cannot be matched")


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))]
)
def test_a_copy_is_a_record(copied) -> None:
    record = Ours("node0", 1)
    assert copied(record) == record
    assert type(copied(record)) is Ours


def test_it_is_frozen() -> None:
    record = Ours("node0")
    with pytest.raises(AttributeError):
        record.port = 1
    with pytest.raises(AttributeError):
        record.elsewhere = 1
    with pytest.raises(TypeError, match="no field"):
        record._replace(elsewhere=1)
