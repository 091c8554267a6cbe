"""Slurm's folded counts of tasks are read; a malformed value is answered with an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.world.tasks_per_node import TasksPerNodeError, runs, tasks_on, totals


@pytest.mark.parametrize(
    ("counts", "per_node"),
    [("4", [4]), ("2(x3),1", [2, 2, 2, 1]), ("5,1(x2)", [5, 1, 1]), ("2,1", [2, 1])],
)
def test_each_node_has_the_tasks_that_slurm_wrote_for_it(counts, per_node):
    assert [tasks_on(counts, node) for node in range(len(per_node))] == per_node
    assert totals(counts) == (len(per_node), sum(per_node))


def test_a_huge_repetition_costs_nothing():
    counts = "8(x100000000000000),4"
    assert tasks_on(counts, 10**14 - 1) == 8
    assert tasks_on(counts, 10**14) == 4
    assert totals(counts) == (10**14 + 1, 8 * 10**14 + 4)


@pytest.mark.parametrize("node", [4, -1])
def test_a_node_beyond_the_counts_is_an_error_that_names_the_nodes_there_are(node):
    with pytest.raises(TasksPerNodeError, match=f"no node number {node}, only 0 to 3"):
        tasks_on("2(x3),1", node)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ("", "character 1: '' is neither a count nor a repeated count"),
        ("2,,1", "character 3: '' is neither a count nor a repeated count"),
        ("2,x", "character 3: 'x' is neither a count nor a repeated count"),
        ("2(x3", r"character 1: the repetition of '2\(x3' is not closed"),
        ("1,2(x0)", r"character 3: '2\(x0\)' is repeated 0 times"),
        ("-1", "character 1: '-1' is neither a count nor a repeated count"),
    ],
)
def test_a_malformed_count_is_shown_with_the_place_the_reason_and_the_remedy(counts, reason):
    with pytest.raises(TasksPerNodeError, match=f"{reason}\nhint: it reads like "):
        totals(counts)


@given(st.text() | st.text(alphabet="(x),0123 "))
def test_random_text_gives_counts_or_a_tasks_per_node_error_and_nothing_else(text):
    try:
        found = list(runs(text))
    except TasksPerNodeError:
        return
    assert found
    assert all(nodes > 0 for _, nodes in found)
