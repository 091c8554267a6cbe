"""What a stranger writes to a worker, and what a false witness answers."""

import json
import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spawnlaunch import witness
from spawnlaunch.hang import asked, culprits, groups
from tests.hang import test_flight
from tests.support.witnessed import needs_line
from tests.witness.asking import Worker, answer_of, begin_of, heard, listens, worker


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that all strangers come to; in the end it has written nothing."""
    with worker(tmp_path_factory.mktemp("worker")) as one:
        assert one.line() == "ready"
        yield one
        answer_of(one.pid)
        assert one.ends() == (0, "")


def stranger(pid: int) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(witness.address(pid, begin_of(pid)))
    return client


NUMBERS = st.one_of(st.integers(), st.floats(), st.none(), st.text(max_size=3), st.lists(st.none()))
QUESTIONS = st.one_of(
    st.binary(max_size=5000),
    st.text().map(str.encode),
    st.builds(
        lambda seconds, every, cut: json.dumps({"seconds": seconds, "every": every})[:cut].encode(),
        st.one_of(st.floats(max_value=0.01), st.sampled_from([0, -1, "x", None, [], {}])),
        NUMBERS, st.one_of(st.none(), st.integers(0, 30)),
    ),
    st.sampled_from([b"[" * 4096, b'{"seconds": ' * 300, b"null", b"{}", b"1e999", b"\0\n"]),
)  # fmt: skip


@needs_line
@settings(max_examples=60)
@given(question=QUESTIONS)
def test_whatever_is_asked_the_next_one_has_an_answer(one: Worker, question: bytes):
    with stranger(one.pid) as client:
        client.sendall(question)
        client.shutdown(socket.SHUT_WR)
        while client.recv(1 << 16):
            pass
    assert answer_of(one.pid).threads


@needs_line
def test_who_says_nothing_or_not_all_keeps_nobody_from_asking(one: Worker):
    with stranger(one.pid), stranger(one.pid) as client:
        client.send(b'{"seconds": 0, ')
        assert answer_of(one.pid).threads


@needs_line
def test_many_at_once(one: Worker):
    """As many as the socket lets wait; others are refused there, and may come again."""
    together = []
    for _ in range(10):
        try:
            together.append(asked.Question(one.pid, begin_of(one.pid), 0.01))
        except BlockingIOError:
            continue
    assert len(together) >= 5
    assert all(heard(each).threads for each in together)
    for _ in range(30):
        stranger(one.pid).close()
    assert answer_of(one.pid).threads


@needs_line
def test_who_leaves_does_not_keep_it_looking(one: Worker):
    for _ in range(3):
        asked.Question(one.pid, begin_of(one.pid), 3600.0).close()
    assert answer_of(one.pid).threads


# A false witness: this process


class False_:
    """Listens where a worker with the number of this process would."""

    def __init__(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(witness.address(os.getpid(), begin_of(os.getpid())))
        self._listener.listen()

    def says(self, *parts: bytes) -> asked.Testimony:
        """What is understood of it. Raises OSError."""
        question = asked.Question(os.getpid(), begin_of(os.getpid()))
        with self._listener.accept()[0] as client:
            client.recv(1 << 12)  # with a question left unread its end would be a reset
            client.setblocking(False)
            for part in parts:
                while part:
                    try:
                        part = part[client.send(part) :]
                    except BlockingIOError:
                        assert question.read() is None
        return heard(question)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def false() -> Iterator[False_]:
    made = False_()
    yield made
    made.close()
    assert not listens(os.getpid())


def entry(**other: Any) -> dict[str, Any]:
    return test_flight.entry(1, **{"record_id": 0, "time_created_ns": 10**18, **other})


def dump(*entries: Any, ranks: Any = "[0, 1]", **other: Any) -> bytes:
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    return pickle.dumps({"version": "2.10", "pg_config": groups, "entries": [*entries], **other}, 2)


def told(dumps: list[bytes], /, **other: Any) -> bytes:
    head = {
        "threads": 'Thread 1 (active): "MainThread"\n    step (/t/train.py:8)\n',
        "stacks": [[["step", "/t/train.py", 8]]], "looks": [[10**18, 0]], "when": 10**18 + 1,
        "groups": {"1": [0, 2]}, "dumps": [*map(len, dumps)], "seconds": 0.01, **other,
    }  # fmt: skip
    return b"".join([json.dumps(head).encode(), b"\n", *dumps])


def test_an_answer_is_understood(false: False_):
    answer = false.says(told([dump(entry())]))
    assert [(call.name, call.number) for call in answer.record.calls] == [("all_reduce", 1)]
    assert answer.record.members == {"0": {0, 1}, "1": {0, 2}}
    assert answer.samples[0].place == "train.py:8"


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda each: st.one_of(st.lists(each, max_size=4), st.dictionaries(st.text(max_size=8), each)),
    max_leaves=8,
)
FIELDS = st.sampled_from(["threads", "stacks", "looks", "when", "groups", "dumps", "seconds"])
OF_ENTRY = st.sampled_from(sorted(entry()))
ENTRIES = st.dictionaries(OF_ENTRY, JSON, max_size=2).map(lambda other: entry(**other))
ANSWERS = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda head, rest: head + b"\n" + rest, JSON.map(json.dumps).map(str.encode),
              st.binary(max_size=100)),
    st.builds(lambda other: told([dump(entry())], **other), st.dictionaries(FIELDS, JSON)),
    st.builds(lambda dumps: told([dumps]), st.binary(max_size=100)),
    st.builds(lambda entries, ranks: told([dump(*entries, ranks=ranks)]),
              st.lists(ENTRIES, max_size=4), st.one_of(JSON, st.text("[]0123456789, "))),
    st.builds(lambda name, value: told([dump(entry(), **{name: value})]),
              st.sampled_from(["pg_config", "entries"]), JSON),
    st.builds(lambda cut: told([dump(entry())])[:cut], st.integers(0, 600)),
)  # fmt: skip


@pytest.mark.full
@settings(max_examples=300)
@given(answer=ANSWERS, cut=st.integers(0, 1000))
def test_whatever_is_answered_is_one_or_an_error(false: False_, answer: bytes, cut: int):
    """And what is understood can be judged, and shown."""
    true = false.says(told([dump(entry())]))
    try:
        understood = false.says(answer[:cut], answer[cut:])
    except OSError:
        return
    verdict = culprits.judged({0: understood, 1: true, 2: understood})
    assert all(note.words for note in culprits.notes(verdict))
    called = groups.groups([groups.StackText(0, True, "by itself", understood.threads)])
    assert [group.line for group in called]


def test_a_dump_calls_nothing(false: False_, tmp_path: Path):
    class Calls:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "called"),)

    with pytest.raises(OSError, match="mkdir"):
        false.says(told([pickle.dumps({"entries": Calls()})]))
    assert not (tmp_path / "called").exists()


def test_an_answer_without_end_is_given_up(false: False_):
    with pytest.raises(OSError, match="end"):
        false.says(*[b"x" * (1 << 20)] * 66)
