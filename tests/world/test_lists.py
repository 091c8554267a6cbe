"""Every form of list is read, fast and lazily; a malformed one is answered with an error."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.world.managers.slurm.lists import (
    ListError,
    count,
    expand,
    first_host,
    hosts,
    runs,
    tasks_on,
)
from tests.support.effort import effort
from tests.world.random_lists import random_list

# Forms that Slurm before 23.11 refuses, so that no scontrol of those years can vouch for them.
NEWER_FORMS = [
    ("gpu[1-2]-ib", ["gpu1-ib", "gpu2-ib"]),
    ("node[0009-0010]-int", ["node0009-int", "node0010-int"]),
    ("r[1-2]n[3-4]x", ["r1n3x", "r1n4x", "r2n3x", "r2n4x"]),
    ("n[1-2]5", ["n15", "n25"]),
    ("[1-2].cluster", ["1.cluster", "2.cluster"]),
    ("n[0-10:5]", ["n0", "n5", "n10"]),
    ("n[0-9:5]", ["n0", "n5"]),
    ("n[08-12:2,20]", ["n08", "n10", "n12", "n20"]),
    ("r[0-2:2]n[1-3:2]", ["r0n1", "r0n3", "r2n1", "r2n3"]),
]
NO_NUMBER = (
    "is no number, of at most 18 digits, and no range of numbers; write gpu[1-3,5], or gpu[0-8:4] "
    "for every fourth"
)


@pytest.mark.parametrize(("hostlist", "expected"), NEWER_FORMS)
def test_suffixes_and_steps_of_newer_slurm_are_understood(hostlist, expected):
    assert expand(hostlist) == expected


@pytest.mark.parametrize(
    ("hostlist", "place", "why"),
    [
        ("n[3-1]", 3, "3-1 runs backwards; write [1-3]"),
        ("a,n[1", 4, "this [ is not closed; close it: gpu[1-3]"),
        ("n[1[2]]", 2, "this [ is not closed; close it: gpu[1-3]"),
        ("n1]", 3, "this ] closes no [; remove it, or open it: gpu[1-3]"),
        ("n[1,,2]", 5, f"'' {NO_NUMBER}"),
        ("n[1-]", 3, f"'1-' {NO_NUMBER}"),
        ("n[1, 2]", 5, f"' 2' {NO_NUMBER}"),
        ("n[²]", 3, f"'²' {NO_NUMBER}"),
        ("n[5:2]", 3, f"'5:2' {NO_NUMBER}"),
        ("n[1-4:0]", 3, f"'1-4:0' {NO_NUMBER}"),
        ("n[1234567890123456789]", 3, f"'1234567890123456789' {NO_NUMBER}"),
    ],
)
def test_a_malformed_list_is_shown_with_the_place_the_reason_and_the_remedy(hostlist, place, why):
    with pytest.raises(ListError) as caught:
        expand(hostlist)
    assert str(caught.value) == f"host list {hostlist!r}, character {place}: {why}"


@pytest.mark.parametrize(
    ("hostlist", "why"),
    [
        ("", "names no host; a host list reads like gpu7 or gpu[1-3,5]"),
        (" , ", "names no host; a host list reads like gpu7 or gpu[1-3,5]"),
        (
            "n[0-99999999]",
            "names 100000000 hosts, more than 1000000; look for a range with a digit too many",
        ),
    ],
)
def test_a_list_of_no_host_or_too_many_is_refused_with_the_remedy(hostlist, why):
    with pytest.raises(ListError) as caught:
        expand(hostlist)
    assert str(caught.value) == f"host list {hostlist!r} {why}"


def test_a_name_of_more_brackets_than_anyone_writes_is_refused():
    with pytest.raises(ListError, match="character 130: too many brackets"):
        first_host("n[1]" * 1000)


def test_of_a_long_list_the_error_shows_what_stands_around_the_mistake():
    long = ",".join(f"node{i}" for i in range(1000)) + ",bad[x],tail" + "z" * 100
    with pytest.raises(ListError) as caught:
        expand(long)
    where = str(caught.value).partition(": ")[0]
    assert "bad[x]" in where
    assert len(where) < 110


@given(st.text() | st.text(alphabet="n[]-,:0123 9a\t"))
def test_random_text_gives_hosts_or_a_list_error_and_nothing_else(text):
    try:
        found = expand(text)
    except ListError:
        return
    assert found
    assert all(host and isinstance(host, str) for host in found)


@given(st.integers(min_value=0))
def test_first_host_and_count_agree_with_the_expanded_list(seed):
    hostlist = random_list(random.Random(seed))
    expanded = expand(hostlist)
    assert first_host(hostlist) == expanded[0]
    assert count(hostlist) == len(expanded)


@pytest.mark.parametrize(
    "hostlist",
    [
        "n[0-99999]",
        "n[" + ",".join(str(i) for i in range(0, 200_000, 2)) + "]",
        ",".join(f"n{i}" for i in range(100_000)),
        "n[0-99999]m[0-99999]x",
    ],
    ids=["one range", "100,000 numbers", "100,000 names", "ten thousand million"],
)
def test_the_first_of_a_hundred_thousand_hosts_is_found_without_the_others(hostlist):
    assert effort(lambda: first_host(hostlist)).calls < 100


def test_hosts_are_read_only_when_they_are_asked_for():
    several = hosts("n[1-2],broken[")
    assert [next(several), next(several)] == ["n1", "n2"]
    with pytest.raises(ListError):
        next(several)


@pytest.mark.parametrize(
    ("counts", "per_node"),
    [("4", [4]), ("2(x3),1", [2, 2, 2, 1]), ("5,1(x2)", [5, 1, 1]), ("2,1", [2, 1])],
)
def test_each_node_has_the_tasks_that_slurm_wrote_for_it(counts, per_node):
    assert [tasks_on(counts, node) for node in range(len(per_node))] == per_node


def test_a_huge_repetition_costs_nothing():
    counts = "8(x100000000000000),4"
    assert tasks_on(counts, 10**14 - 1) == 8
    assert tasks_on(counts, 10**14) == 4
    assert list(runs(counts)) == [(8, 10**14), (4, 1)]


@pytest.mark.parametrize("node", [4, -1])
def test_a_node_beyond_the_counts_is_an_error_that_names_the_nodes_there_are(node):
    with pytest.raises(ListError, match=f"no node number {node}, only 0 to 3"):
        tasks_on("2(x3),1", node)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ("", "character 1: '' is neither a count nor a repeated count"),
        ("2,,1", "character 3: '' is neither a count nor a repeated count"),
        ("2,x", "character 3: 'x' is neither a count nor a repeated count"),
        ("2(x3", r"character 1: '2\(x3' is neither a count nor a repeated count"),
        ("1,2(x0)", r"character 3: '2\(x0\)' is neither a count nor a repeated count"),
        ("-1", "character 1: '-1' is neither a count nor a repeated count"),
    ],
)
def test_a_malformed_count_is_shown_with_the_place_the_reason_and_the_remedy(counts, reason):
    with pytest.raises(ListError, match=f"{reason}; write 2\\(x3\\),1 for "):
        list(runs(counts))


@given(st.text() | st.text(alphabet="(x),0123 "))
def test_random_text_gives_counts_or_a_list_error_and_nothing_else(text):
    try:
        found = list(runs(text))
    except ListError:
        return
    assert found
    assert all(nodes > 0 for _, nodes in found)
