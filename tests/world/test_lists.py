"""Every form of list is read, fast and lazily; a malformed one is answered with an error."""

import subprocess
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.world.managers.slurm.lists import (
    ListError,
    expand,
    hosts,
    tasks_on,
)
from tests.support.effort import effort
from tests.support.required import require_programs

LISTS_PER_SHELL = 500


def host_list(random: Random, *, newer: bool) -> tuple[str, list[str]]:
    """A host list, and the hosts that it names.

    Only `newer` Slurm, since 23.11, knows steps and what is behind a bracket.
    """
    entries = [host_entry(random, newer) for _ in range(random.randint(1, 4))]
    separator = random.choice([",", ",", ",,", " ", "\t"])
    return separator.join(text for text, _ in entries), [
        name for _, named in entries for name in named
    ]


def host_entry(random: Random, newer: bool) -> tuple[str, list[str]]:
    """An entry of up to three brackets. The last turns fastest, then the first, then the second."""
    names = ["n", "node", "rack-", "gpu0", "a.b-", "x1000c"]
    brackets = [host_bracket(random, newer) for _ in range(random.choice([0, 1, 1, 1, 2, 2, 3]))]
    if not brackets:
        name = random.choice(names) + str(random.randint(0, 99))
        return name, [name]
    before = [random.choice([*names, ""] if newer else names) for _ in brackets]
    suffix = random.choice(["", "-ib", ".cluster", "5"]) if newer else ""
    text = "".join(f"{name}[{inside}]" for name, (inside, _) in zip(before, brackets, strict=True))
    *slow, fast = [numbers for _, numbers in brackets]
    turning = ([*reversed(others), last] for *others, last in product(*reversed(slow), fast))
    parts = (zip(before, numbers, strict=True) for numbers in turning)
    return text + suffix, ["".join(map("".join, pairs)) + suffix for pairs in parts]


def host_bracket(random: Random, newer: bool) -> tuple[str, list[str]]:
    """What is between two brackets, and its numbers, which are as wide as the first of a range."""
    texts, numbers = [], []
    for _ in range(random.randint(1, 3)):
        low = random.choice([0, 1, 7, 9, 95, 998, random.randint(0, 2000)])
        first = f"{low:0{random.choice([0, 0, 0, 2, 3, 4])}d}"
        step, many = random.choice([1, 2, 5]) if newer else 1, random.choice([1, 1, 2, 7])
        last = f"{low + (many - 1) * step:0{random.choice([0, len(first)])}d}"
        stepped = f"{first}-{last}:{step}" if step > 1 else f"{first}-{last}"
        texts.append(stepped if many > 1 else first)
        numbers += [f"{low + i * step:0{len(first)}d}" for i in range(many)]
    return ",".join(texts), numbers


@given(st.randoms())
def test_a_list_names_the_hosts_that_it_was_made_of(random: Random) -> None:
    text, expected = host_list(random, newer=True)
    assert expand(text) == expected
    assert next(hosts(text)) == expected[0]


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration without which scontrol expands nothing; it wants no daemon."""
    require_programs("scontrol", package="slurm-client")
    conf = tmp_path_factory.mktemp("scontrol") / "slurm.conf"
    conf.write_text(
        "ClusterName=lists\nSlurmctldHost=localhost\nNodeName=n0\nPartitionName=p Nodes=ALL\n"
    )
    return conf


def shown_by(conf: Path, hostlists: list[str]) -> list[list[str]]:
    """What scontrol makes of the lists; of one that it refuses: nothing, with status 0 (22.05)."""
    each = 'for list; do scontrol show hostnames "$list" 2> /dev/null; echo "//"; done'
    shell = subprocess.run(
        ["sh", "-c", each, "sh", *hostlists],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "SLURM_CONF": str(conf)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [block.split() for block in shell.stdout.split("//\n")[:-1]]


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, 2])
def test_a_list_names_the_hosts_that_scontrol_shows(scontrol: Path, seed: int) -> None:
    made = [host_list(Random(f"{seed}.{i}"), newer=False) for i in range(LISTS_PER_SHELL)]
    assert shown_by(scontrol, [text for text, _ in made]) == [expected for _, expected in made]


@pytest.mark.full
def test_loose_separators_and_what_is_refused_are_those_of_scontrol(scontrol: Path) -> None:
    loose = ["n[1-2],,m", ",n1", "n1,", "a b", "a\tb", "n[1] m[2]"]
    assert [expand(each) for each in loose] == shown_by(scontrol, loose)
    refused = ["n[3-1]", "n[]", "n[1,,2]", "n[a]", "n[1-2-3]", "n[-1]"]
    assert shown_by(scontrol, refused) == [[]] * len(refused)
    for each in refused:
        with pytest.raises(ListError):
            expand(each)


def test_of_a_long_list_the_error_shows_what_stands_around_the_mistake() -> None:
    long = ",".join(f"node{i}" for i in range(1000)) + ",bad[x],tail" + "z" * 100
    with pytest.raises(ListError) as caught:
        expand(long)
    where = str(caught.value).partition(": ")[0]
    assert "bad[x]" in where
    assert len(where) < 110


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
def test_the_first_of_a_hundred_thousand_hosts_is_found_without_the_others(hostlist) -> None:
    assert effort(lambda: next(hosts(hostlist))).calls < 100


@pytest.mark.parametrize("hostlist", ["n[0-9999999]", "n[0-99999]m[0-99999]x"])
def test_what_names_more_hosts_than_there_are_is_refused(hostlist: str) -> None:
    with pytest.raises(ListError, match="more than 1000000 hosts"):
        expand(hostlist)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1))
def test_each_node_has_the_tasks_that_slurm_wrote_for_it(pairs: list[tuple[int, int]]) -> None:
    counts = ",".join(f"{tasks}(x{nodes})" if nodes > 1 else f"{tasks}" for tasks, nodes in pairs)
    each = [tasks for tasks, nodes in pairs for _ in range(nodes)]
    assert [tasks_on(counts, node) for node in range(len(each))] == each


def test_a_huge_repetition_costs_nothing() -> None:
    counts = "8(x100000000000000),4"
    assert tasks_on(counts, 10**14 - 1) == 8
    assert tasks_on(counts, 10**14) == 4
