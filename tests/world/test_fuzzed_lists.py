"""Lists of hosts and of tasks per node: what is meant is read, and all else is refused."""

from itertools import islice, product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from spawnlaunch.world.managers.slurm import lists
from spawnlaunch.world.managers.slurm.lists import ListError
from tests.support.answers import bounded
from tests.support.examples import examples, nightly
from tests.support.texts import slips

MOST = 5000  # of what a list names, to compare
Meant = tuple[str, list[Any]]  # a text, and what it stands for


@st.composite
def brackets(draw: DrawFn) -> Meant:
    """What stands between two brackets, and its numbers."""
    words, meaning = [], []
    for _ in range(draw(st.integers(1, 3))):
        low, width = draw(st.sampled_from([0, 1, 8, 98, 995])), draw(st.sampled_from([1, 3, 5]))
        first = f"{low:0{width}d}"
        count, step = draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 5]))
        steps = f":{step}" if step > 1 else ""
        last = low + (count - 1) * step
        words.append(first if count == step == 1 else f"{first}-{last}{steps}")
        meaning += [f"{low + i * step:0{len(first)}d}" for i in range(count)]
    return ",".join(words), meaning


@st.composite
def entries(draw: DrawFn) -> Meant:
    """The last bracket of a name turns fastest, then the first, the second and so on."""
    found = draw(st.lists(brackets(), max_size=3))
    if not found:
        name = draw(st.sampled_from(["login", "n-7", "a.b", "x1000c0", "0"]))
        return name, [name]
    names = [draw(st.sampled_from(["n", "rack-", "gpu0", "a.b"])) for _ in found]
    suffix = draw(st.sampled_from(["", "-ib", ".cluster"]))
    entry = "".join(f"{name}[{said}]" for name, (said, _) in zip(names, found, strict=True))
    *slow, fast = [numbers for _, numbers in found]
    turning = ((*reversed(others), last) for *others, last in product(*reversed(slow), fast))
    hosts = ["".join(map("".join, zip(names, each, strict=True))) + suffix for each in turning]
    return entry + suffix, hosts


@st.composite
def host_lists(draw: DrawFn) -> Meant:
    """A list of hosts, and these."""
    parts = draw(st.lists(entries(), min_size=1, max_size=4))
    text = draw(st.sampled_from([",", " ", ",,"])).join(entry for entry, _ in parts)
    return text, [host for _, named in parts for host in named]


@st.composite
def task_counts(draw: DrawFn) -> Meant:
    """Counts of tasks, and that of each node."""
    words, meaning = [], []
    for _ in range(draw(st.integers(1, 5))):
        each, nodes = draw(st.sampled_from([1, 2, 8, 128])), draw(st.sampled_from([1, 2, 40]))
        words.append(f"{each}(x{nodes})" if nodes > 1 or draw(st.booleans()) else f"{each}")
        meaning += [each] * nodes
    return ",".join(words), meaning


def read_hosts(text: str) -> list[str]:
    """All hosts, or the first of very many; by whatever way they are asked for."""
    count = lists.count(text)
    found = list(islice(lists.hosts(text), MOST))
    assert len(found) == min(count, MOST)
    assert lists.first_host(text) == found[0]
    if count <= MOST:
        assert lists.expand(text) == found
    return found


def read_tasks(text: str) -> list[int]:
    """Of each node, or of the first of very many."""
    runs = list(lists.runs(text))
    nodes = sum(times for _, times in runs)
    found = [lists.tasks_on(text, node) for node in range(min(nodes, 200))]
    assert nodes > 200 or sum(found) == sum(tasks * times for tasks, times in runs)
    return found


@examples(100, 1000)
@given(host_lists())
def test_hosts_are_those_that_are_meant(meant: Meant):
    text, hosts = meant
    assert read_hosts(text) == hosts[:MOST]


@examples(50, 500)
@given(task_counts())
def test_tasks_are_those_that_are_meant(meant: Meant):
    text, counts = meant
    assert read_tasks(text) == counts[:200]


def is_read_or_refused(hosts: str, tasks: str) -> None:
    for read, text in ((read_hosts, hosts), (read_tasks, tasks)):
        try:
            with bounded():
                read(text)
        except ListError as error:
            line = str(error)
            assert 0 < len(line) < 2 * len(text) + 1000


DAMAGED = (
    slips(slips(host_lists().map(lambda meant: meant[0]))),
    slips(task_counts().map(lambda meant: meant[0])),
)
test_a_list_with_slips_is_read_or_refused = examples(100, 1000)(given(*DAMAGED)(is_read_or_refused))
test_thousands_of_lists = nightly(given(*DAMAGED)(is_read_or_refused))
