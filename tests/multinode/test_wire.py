"""Who does not know the secret is not heard, whatever he writes; where the secret is from."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.base.errors import UsageError
from spawnlaunch.multinode import messages, wire
from spawnlaunch.multinode.hub import Hub
from spawnlaunch.multinode.messages import MOST_COUNT, Beat, Failed, Hello, Idle, Start
from spawnlaunch.multinode.phases import RUNNING
from spawnlaunch.multinode.roster import MOST_WORKERS
from spawnlaunch.multinode.settings import Settings, secret_token
from spawnlaunch.multinode.wire import NAME, Foreign, Wire, digest_of, secret_of
from spawnlaunch.outcome.failures import Cause
from tests.multinode.hosts import Calls

SECRET = secret_of(None, "none")
HELLO = Hello("höst", "who", 2, port=29500, flags=(("--nnodes", "2"),))
LEAST_TOKEN, MOST_TOKEN = 16, 4096  # bytes


def fresh(is_hub: bool) -> Wire:
    return Wire(SECRET, "none", is_hub)


def shaken() -> tuple[Wire, Wire]:
    """A hub's end and a member's, which have proved themselves."""
    hub, member = fresh(True), fresh(False)
    for _ in range(2):
        assert hub.feed(member.take()) == []
        assert member.feed(hub.take()) == []
    assert hub.is_ready
    assert member.is_ready
    return hub, member


def as_line(member: Wire, text: str) -> bytes:
    """A text as the first line of one that knows the secret."""
    return member.mac(False, 0, text.encode()) + b" " + text.encode() + b"\n"


@given(st.lists(st.sampled_from([HELLO, *map(Beat, range(3))])), st.lists(st.integers(0, 2000)))
def test_messages_arrive_whole_and_in_order_however_they_are_cut(
    sent: list[messages.ToHub], cuts: list[int]
) -> None:
    hub, member = shaken()
    lines = b"".join(map(member.encode, sent))
    places = [0, *sorted(cuts), None]
    parts = [lines[one:other] for one, other in itertools.pairwise(places)]
    assert [message for part in parts for message in hub.feed(part)] == sent


def proved(is_hub: bool, has_heard: bool) -> Wire:
    """An end to which the other one has proved itself."""
    hub, member = shaken()
    if has_heard:
        hub.feed(member.encode(Beat(1)))
        member.feed(hub.encode(Beat(1)))
    return hub if is_hub else member


@pytest.mark.parametrize(
    ("end", "most"),
    [
        pytest.param(lambda: fresh(True), wire.MOST_FIRST, id="before the proof"),
        pytest.param(lambda: fresh(False), wire.MOST_FIRST, id="of a hub before it"),
        pytest.param(lambda: proved(True, False), wire.MOST_HELLO, id="the hello"),
        pytest.param(lambda: proved(True, True), wire.MOST_LINE, id="after it"),
        pytest.param(lambda: proved(False, False), wire.MOST_LINE, id="of the hub"),
        pytest.param(lambda: proved(False, True), wire.MOST_LINE, id="of the hub later"),
    ],
)
def test_a_line_has_a_limit_also_where_it_does_not_end(end: Callable[[], Wire], most: int) -> None:
    one = end()
    assert one.feed(b"x" * most) == []
    with pytest.raises(Foreign, match="too long"):
        one.feed(b"x")
    with pytest.raises(Foreign, match="too long"):
        end().feed(b"x" * (most + 1) + b"\n")


def test_limits_are_those_of_the_protocol() -> None:
    assert (wire.MOST_FIRST, wire.MOST_HELLO, wire.MOST_LINE) == (4096, 2**16, 2**20)


@pytest.mark.parametrize(
    ("is_hub", "lines", "why"),
    [
        (
            True,
            f"{NAME} {digest_of('7')} {'0' * 32} 7\n",
            "another --rdzv-id: the launcher has 7, the hub none; use the same on all",
        ),
        (
            True,
            f"{NAME} {digest_of('7')} {'0' * 32} {'x' * 90}\n",
            "another --rdzv-id: the launcher has xxx",
        ),
        (True, f"spawnlaunch/999 {digest_of('none')} {'0' * 32}\n", "another version"),
        (True, f"{NAME} {digest_of('none')} {'0' * 32} none\n{'0' * 64}\n", "another token"),
        (False, "no another token\n", "another token"),
        (False, "spawnlaunch/999 of something else\n", "another version"),
        (False, f"{NAME} {'0' * 32} {'0' * 64}\n", "another token"),
    ],
)
def test_what_is_never_heard_says_why(is_hub: bool, lines: str, why: str) -> None:
    with pytest.raises(Foreign) as foreign:
        fresh(is_hub).feed(lines.encode())
    assert str(foreign.value).startswith(why)
    assert foreign.value.is_final


@pytest.mark.parametrize("how", ["replayed", "reflected", "reordered", "changed", "of another"])
def test_a_line_is_good_once_and_in_its_place(how: str) -> None:
    hub, member = shaken()
    first, second = member.encode(Beat(1)), member.encode(Beat(2))
    forged = {
        "replayed": first + first,
        "reflected": hub.encode(Beat(1)),
        "reordered": second,
        "changed": first.replace(b":1", b":7"),
        "of another": shaken()[1].encode(Beat(1)),
    }[how]
    with pytest.raises(Foreign, match="cannot have written"):
        hub.feed(forged)


@given(st.binary(max_size=100))
def test_bytes_without_the_secret_are_never_heard(words: bytes) -> None:
    for one in (shaken()[0], fresh(True)):
        with pytest.raises(Foreign):
            one.feed(words + b"\n")


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"is": []}', '{"is": "start"}', '{"is": "beat", "number": 1e400}', "nonsense",
     '{"is": "beat", "number": true}', '{"is": "idle", "epoch": 1, "outcomes": [[1]]}',
     '{"is": "idle", "epoch": 1, "outcomes": {}}', '{"is": "idle", "epoch": 1, "outcomes": 5}',
     json.dumps({"is": "idle", "epoch": 1, "outcomes": [[0, 0]] * (2**16 + 1)}),
     '{"is": "failed", "epoch": 1, "rank": 0, "code": 1, "age_s": NaN}', "[" * 100_000,
     json.dumps({"is": "failed", "epoch": 1, "rank": 0, "code": 1, "words": "x" * 20_000})],
)  # fmt: skip
def test_what_is_no_message_is_not_heard(text: str) -> None:
    hub, member = shaken()
    with pytest.raises(Foreign, match=r"none|too long"):
        hub.feed(as_line(member, text))


@pytest.mark.parametrize(
    ("field", "value"),
    [("host", "a\0b"), ("host", "\x1b[2J"), ("host", "9" * 5000), ("addr", "a\nb"),
     ("launcher_id", "\ud800"), ("port", 0), ("port", 10**9), ("given_node_rank", -2),
     ("given_node_rank", 10**15),
     ("epoch", MOST_COUNT + 1), ("epoch", 10**15), ("used", -1), ("end_signal", -1),
     ("end_signal", 65),
     ("nproc", 10**400), ("launch_name", "x" * 256)],
)  # fmt: skip
def test_a_hello_that_cannot_be_is_not_heard(field: str, value: object) -> None:
    """What it has would be printed, be in workers' environments, or be counted on."""
    hub, member = shaken()
    with pytest.raises(Foreign, match="a message that is none"):
        hub.feed(member.encode(HELLO._replace(**{field: value})))


def test_the_longest_words_and_lists_are_heard() -> None:
    hub, member = shaken()
    failed = Failed(1, Cause("failure", words="x" * 2**14))
    for message in (failed, Idle(1, 1, ((0, 0),) * 2**16)):
        assert hub.feed(member.encode(message)) == [message]


def test_what_a_hello_does_not_say_is_nothing() -> None:
    """As one of a version without that field says it."""
    hub, member = shaken()
    said = {"host": "a", "launcher_id": "b", "nproc": 1}
    (hello,) = hub.feed(as_line(member, json.dumps({"is": "hello", **said})))
    known = {**said, "given_node_rank": -1, "last_node_rank": -1, "role": "default"}
    assert known.items() <= hello._asdict().items()
    assert not any(getattr(hello, name) for name in hello._asdict().keys() - known)


def test_the_most_that_a_hello_may_claim_leads_to_words_that_are_read() -> None:
    hub, member = shaken()
    most = Hello("x" * 255, "w" * 255, MOST_WORKERS, port=65535, epoch=MOST_COUNT,
                 nodes=MOST_COUNT, last_node_rank=MOST_COUNT, restart_count=MOST_COUNT,
                 used=MOST_COUNT, launch_name="l" * 255)  # fmt: skip
    assert hub.feed(member.encode(most)) == [most]
    calls = Calls()
    rules = Hub(Settings(1, 1, max_restarts=MOST_COUNT + 1), calls, lambda: 1000.0, calls.wake)
    rules.connected(1, most, "10.0.0.1")
    assert rules.phase == RUNNING
    said = [message for _, message in calls.calls("send")]
    assert Start in map(type, said)
    assert [member.feed(hub.encode(message)) for message in said] == [[one] for one in said]


# The secret


def test_a_flag_goes_before_a_file_of_the_environment_and_that_before_a_text(
    tmp_path: Path,
) -> None:
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).write_text(f"{path[-1] * LEAST_TOKEN}\n")
    a_file = {"SPAWNLAUNCH_TOKEN_FILE": paths[1]}
    a_text = {"SPAWNLAUNCH_TOKEN": f" {'c' * LEAST_TOKEN}\n"}
    assert secret_token(paths[0], {**a_file, **a_text}) == b"a" * LEAST_TOKEN
    assert secret_token(None, {**a_file, **a_text}) == b"b" * LEAST_TOKEN
    assert secret_token(None, a_text) == b"c" * LEAST_TOKEN
    assert secret_token(None, {}) is None
    with pytest.raises(UsageError, match=r"--token-file .*/none: No such file"):
        secret_token(str(tmp_path / "none"), {})
    with pytest.raises(UsageError, match="SPAWNLAUNCH_TOKEN_FILE is empty"):
        secret_token(None, {"SPAWNLAUNCH_TOKEN_FILE": "", **a_text})


@pytest.mark.parametrize(
    "size", [0, LEAST_TOKEN - 1, LEAST_TOKEN, MOST_TOKEN, MOST_TOKEN + 1, 2 * MOST_TOKEN]
)
def test_a_token_has_a_size_in_a_file_and_in_the_environment(tmp_path: Path, size: int) -> None:
    path = tmp_path / "token"
    path.write_text("x" * size)
    for where in ({"SPAWNLAUNCH_TOKEN_FILE": str(path)}, {"SPAWNLAUNCH_TOKEN": "x" * size}):
        if LEAST_TOKEN <= size <= MOST_TOKEN:
            assert secret_token(None, where) == b"x" * size
        else:
            with pytest.raises(UsageError, match=f"must have {LEAST_TOKEN} to {MOST_TOKEN}"):
                secret_token(None, where)
