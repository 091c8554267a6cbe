"""Why a launch ends: the same words wherever it is said."""

import json
import re
from pathlib import Path

import pytest

from spawnlaunch.multinode import messages
from spawnlaunch.outcome.failures import WORDS, Cause

PAGE = Path(__file__).parent.parent / "docs/ending.md"


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (Cause("failure", "node3", 7, 9, pid=42), "rank 7 on node3 (pid 42) exited with status 9"),
        (Cause("failure", "node3", 7, 127), "rank 7 on node3 (not started) exited with status 127"),
        (
            Cause("failure", "node3", 7, -9, pid=42, after_s=1.26, oom="out of memory: 1"),
            "rank 7 on node3 (pid 42) died of SIGKILL after 1.3 s; out of memory: 1",
        ),
        (
            Cause("failure", "node3", 7, -40, pid=42, lost=("node1",)),
            "rank 7 on node3 (pid 42) died of signal 40 (node1 was lost as well, probably the "
            "cause)",
        ),
        (Cause("hang", after_s=5.0), "the workers hung after 5.0 s"),
        (Cause("signal", "node3", code=-15), "the launcher on node3 got SIGTERM"),
        (Cause("timeout", after_s=5.0), "the time of the launch is over (--timeout)"),
        (Cause("gone"), "the launcher is gone"),
        (Cause("guard", pid=7, words="could not go on"), "the guard (pid 7) could not go on"),
        (Cause("preload", words="no module {x}"), "no module {x}"),
        (Cause("lost", "node3"), "node3 was lost"),
        (Cause("lost", words="the hub"), "the hub was lost"),
        (Cause("join", "node3"), "node3 has joined"),
        (Cause("absent", words="node1, node2"), "still missing: node1, node2"),
        (Cause("unable", "node3", words="no script"), "node3 cannot take part: no script"),
        (Cause("refused", words="another token"), "another token"),
    ],
)
def test_a_cause_in_words(cause: Cause, said: str):
    assert cause.in_words == said


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (Cause("failure", code=7), 7),
        (Cause("failure", code=-9), 137),
        (Cause("hang"), 124),
        (Cause("timeout"), 124),
        (Cause("signal", code=-15), 143),
        (Cause("gone"), 137),
        (Cause("guard", code=70), 70),
        (Cause("preload", code=2), 2),
        (Cause("lost"), 69),
        (Cause("join"), 69),
        (Cause("absent"), 69),
        (Cause("unable", code=2), 2),
        (Cause("refused", code=2), 2),
    ],
)
def test_the_status_of_a_cause(cause: Cause, status: int):
    assert cause.status([0, 7]) == status
    asks_the_workers = cause.kind in ("signal", "gone")
    assert cause.status([85, 85]) == (85 if asks_the_workers else status)
    assert cause.status([-15, -15]) == status


def test_each_kind_is_documented_and_goes_through_the_wire():
    documented = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.M)
    assert documented == [*WORDS]
    for kind in WORDS:
        end = messages.End(1, Cause(kind))
        assert messages.from_json(json.loads(json.dumps(messages.to_json(end))), (messages.End,))
    with pytest.raises(messages.Malformed):
        messages.from_json({"is": "end", "status": 1, "cause": {"kind": "bad"}}, (messages.End,))
