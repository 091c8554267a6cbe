"""Every form of host list is read, fast and lazily; a malformed one is answered with an error."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.world.hostlist import HostlistError, count, expand, first_host, host_at, hosts
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


@pytest.mark.parametrize(("hostlist", "expected"), NEWER_FORMS)
def test_suffixes_and_steps_of_newer_slurm_are_understood(hostlist, expected):
    assert expand(hostlist) == expected


@pytest.mark.parametrize(
    ("hostlist", "message"),
    [
        (
            "n[3-1]",
            "host list 'n[3-1]', character 3: the range 3-1 runs backwards\nhint: write [1-3]",
        ),
        ("a,n[1", "host list 'a,n[1', character 4: this [ is not closed\nhint: close it: gpu[1-3]"),
        (
            "n[1[2]]",
            "host list 'n[1[2]]', character 2: this [ is not closed\nhint: close it: gpu[1-3]",
        ),
        (
            "n1]",
            "host list 'n1]', character 3: this ] closes no [\n"
            "hint: remove it, or open it: gpu[1-3]",
        ),
        (
            "n[1,,2]",
            "host list 'n[1,,2]', character 5: a number is missing\n"
            "hint: write numbers and ranges: gpu[1-3,5]",
        ),
        (
            "n[1-]",
            "host list 'n[1-]', character 3: '1-' is missing a number\n"
            "hint: write numbers and ranges: gpu[1-3,5]",
        ),
        (
            "n[1, 2]",
            "host list 'n[1, 2]', character 5: ' 2' is no number\n"
            "hint: write digits, and no spaces: gpu[1-3,5]",
        ),
        (
            "n[²]",
            "host list 'n[²]', character 3: '²' is no number\n"
            "hint: write digits, and no spaces: gpu[1-3,5]",
        ),
        (
            "n[5:2]",
            "host list 'n[5:2]', character 3: 5:2 has a step but no range\n"
            "hint: write a range before the colon: [0-8:4]",
        ),
        (
            "n[1-4:0]",
            "host list 'n[1-4:0]', character 3: the step of 1-4:0 is 0\n"
            "hint: write [1-4] for every host",
        ),
        (
            "n[1234567890123456789]",
            "host list 'n[1234567890123456789]', character 3: a number of 19 digits\n"
            "hint: write at most 18 digits",
        ),
        ("", "host list '' names no host\nhint: a host list reads like gpu7 or gpu[1-3,5]"),
        (" , ", "host list ' , ' names no host\nhint: a host list reads like gpu7 or gpu[1-3,5]"),
        (
            "n[0-99999999]",
            "host list 'n[0-99999999]' names 100000000 hosts, more than 1000000\n"
            "hint: look for a range with a digit too many",
        ),
    ],
)
def test_a_malformed_list_is_shown_with_the_place_the_reason_and_the_remedy(hostlist, message):
    with pytest.raises(HostlistError) as caught:
        expand(hostlist)
    assert str(caught.value) == message


def test_a_name_of_more_brackets_than_anyone_writes_is_refused():
    with pytest.raises(HostlistError, match="character 130: too many brackets in a name"):
        first_host("n[1]" * 1000)


def test_of_a_long_list_the_error_shows_what_stands_around_the_mistake():
    long = ",".join(f"node{i}" for i in range(1000)) + ",bad[x],tail" + "z" * 100
    with pytest.raises(HostlistError) as caught:
        expand(long)
    first_line = str(caught.value).splitlines()[0]
    assert "bad[x]" in first_line
    assert len(first_line) < 150


@given(st.text() | st.text(alphabet="n[]-,:0123 9a\t"))
def test_random_text_gives_hosts_or_a_hostlist_error_and_nothing_else(text):
    try:
        found = expand(text)
    except HostlistError:
        return
    assert found
    assert all(host and isinstance(host, str) for host in found)


@given(st.integers(min_value=0))
def test_first_host_host_at_and_count_agree_with_the_expanded_list(seed):
    hostlist = random_list(random.Random(seed))
    expanded = expand(hostlist)
    assert first_host(hostlist) == expanded[0]
    assert count(hostlist) == len(expanded)
    for index in (0, len(expanded) // 3, len(expanded) - 1):
        assert host_at(hostlist, index) == expanded[index]


@pytest.mark.parametrize("index", [4, -1])
def test_a_host_number_outside_the_list_is_an_error_that_names_it(index):
    with pytest.raises(HostlistError, match=f"host number {index} of 'n\\[0-3\\]'"):
        host_at("n[0-3]", index)


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
    with pytest.raises(HostlistError):
        next(several)
