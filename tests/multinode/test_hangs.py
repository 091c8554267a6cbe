"""What the nodes of a launch tell each other of a hang says the same as if all ranks were here."""

import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spawnlaunch.hang import asked, culprits, flight, groups, stacks
from spawnlaunch.multinode import hangs, messages
from tests.multinode.launchers import Launchers
from tests.support.launching import run

NOW_NS = 10**18
WORLD = "0"
CALLS = st.sampled_from([("all_reduce", "Float[4]"), ("all_reduce", "Half[4]"), ("barrier", "")])
HANG = ("--hang-timeout=15", "--on-hang=kill")
TRAINS = Path(__file__).parent / "of_several_nodes.py"


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[int, asked.Testimony], list[range]]:
    """What each rank answers, and the ranks of each node."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    nodes = [range(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes))]
    members = {WORLD: frozenset(range(sum(sizes)))}
    for group in sorted(draw(st.sets(st.sampled_from("12")))):  # else each process has an order
        members[group] = frozenset(draw(st.sets(st.integers(0, sum(sizes) - 1), min_size=1)))
    moments = iter(draw(st.permutations(range(1, 1000))))  # no two calls begin at once
    found = {}
    for rank in range(sum(sizes)):
        calls = []
        for group in sorted(name for name, ranks in members.items() if rank in ranks):
            number = draw(st.integers(0, 2))
            if number:
                when = NOW_NS - next(moments) * 10**9
                drawn = (group, number, *draw(CALLS), "", when, draw(st.booleans()))
                calls.append(flight.Collective(*drawn))
        looks = [
            asked.StackSample(
                NOW_NS - 1, f"train.py:{draw(st.integers(1, 9))}", draw(st.booleans())
            )
        ]
        found[rank] = asked.Testimony("", looks, flight.Record(tuple(calls), members), NOW_NS, 0.0)
    return found, nodes


def sent(told: messages.Stacked) -> messages.Stacked:
    """As the other end reads it."""
    read = messages.from_json(json.loads(json.dumps(messages.to_json(told))), messages.TO_HUB)
    assert read == told
    return read


@settings(max_examples=100)
@given(worlds())
def test_the_same_rank_is_waited_for_over_nodes_as_on_one(
    world: tuple[dict[int, asked.Testimony], list[range]],
) -> None:
    found, nodes = world
    parts = ({rank: found[rank] for rank in node} for node in nodes)
    told = [sent(messages.Stacked(1, (), hangs.rows_of(own, NOW_NS))) for own in parts]
    rows = [row for one in told for row in one.reached]
    answers = hangs.testimonies_of(rows, NOW_NS, len(found))
    assert waited_for(answers) == waited_for(found)


def waited_for(answers: dict[int, asked.Testimony]) -> tuple[list[int], str]:
    """The ranks, and what is said of ranks in different collectives, but for their lines."""
    verdict = culprits.judged(answers, hang_s=stacks.MISSING_S)
    words = verdict.mismatch.words if verdict.mismatch else ""
    ranks = [one.rank for one in verdict.culprits if one.is_hang]
    return ranks, re.sub(r" \(train.py:\d\)", "", words)


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), min_size=1, max_size=4))
def test_the_roll_of_all_nodes_is_that_of_their_ranks(nodes: list[list[str]]) -> None:
    ranks = iter(range(100))
    answers = [
        [groups.StackText(next(ranks), True, "by itself", stack(line)) for line in node]
        for node in nodes
    ]
    told = [sent(messages.Stacked(1, hangs.where_rows_of(groups.groups(node)))) for node in answers]
    roll = hangs.roll_of([row for one in told for row in one.where], next(ranks))
    expected = groups.groups(answer for node in answers for answer in node)
    assert [group.line for group in roll] == [group.line for group in expected]


def stack(function: str) -> str:
    return f'Thread 1 (active): "MainThread"\n    {function} (/home/me/train.py:8)\n'


def test_what_is_told_has_a_bound() -> None:
    members = {str(n): frozenset(range(8)) for n in range(1000)}
    calls = tuple(flight.Collective(g, 1, "x" * 9999, "é" * 9999, "", 0) for g in members)
    looks = [asked.StackSample(NOW_NS - 1, "z" * 9999, False)]
    answer = asked.Testimony("", looks, flight.Record(calls, members), NOW_NS, 0.0)
    rows = hangs.rows_of({0: answer}, NOW_NS)
    roll = [groups.Group([n], True, "é" * 9999, "é" * 9999) for n in range(1000)]
    told = messages.Stacked(1, hangs.where_rows_of(roll), rows)
    assert len(json.dumps(messages.to_json(sent(told)))) < 2**20


def test_a_rank_that_is_none_of_this_world_is_not_named() -> None:
    of_nobody = ((-1, 10**9),)
    roll = hangs.roll_of([messages.Where("is lost", "are lost", of_nobody)], 3)
    assert [group.line for group in roll] == ["ranks 0-2 are lost"]
    assert hangs.roll_of([messages.Where("is lost", "are lost", ((5, 9),))], 3) == []


@pytest.mark.full
def test_the_node_of_the_hub_says_where_the_ranks_of_all_nodes_are(tmp_path: Path) -> None:
    launchers = Launchers(tmp_path)
    record = tmp_path / "record"
    flags = ("--nnodes=2", "--nproc=2", "--oversubscribe", "--rdzv-backend=static")
    flags += ("--record", str(record))
    for node_rank, name in enumerate("ab"):
        launchers.start(name, *flags, *HANG, f"--node-rank={node_rank}", TRAINS)
    assert launchers.statuses() == {"a": 124, "b": 124}
    assert re.search(
        r"spawnlaunch: all nodes: the others wait for rank 3, \S+ s so far, before "
        r"of_several_nodes.py:31 \(all_reduce\); it is at of_several_nodes.py:26\n"
        r"spawnlaunch: this is where 4 of 4 ranks of all nodes are:\n"
        r"spawnlaunch:   rank 3 is in load \(of_several_nodes.py:\d+\)\n"
        r"spawnlaunch:   ranks 0-2 wait in all_reduce \(of_several_nodes.py:\d+\)\n",
        launchers.said("a"),
    ), launchers.said("a")
    assert "all nodes" not in launchers.said("b")
    report = run(sys.executable, "-m", "spawnlaunch.report", record, "--html", "-", check=True)
    rolls = re.findall(r"rank 3 is in load [^<]*", report.stdout)
    of_all = r".*\); ranks 0-2 wait in all_reduce \(of_several_nodes.py:\d+\)"
    assert any(re.match(of_all, roll) for roll in rolls), rolls
    assert re.search(
        r"<b>waited for</b> after \d+ s: the others wait for rank 3, \S+ s so far, before "
        r"of_several_nodes.py:31 \(all_reduce\); it is at of_several_nodes.py:26 "
        r"\(of the ranks of all nodes; clocks within 10 ms\)<",
        report.stdout,
    ), report.stdout
