"""Lists of hosts, of tasks per node and of CPUs: what is meant is read, all else is refused."""

from itertools import islice, product
from random import Random
from typing import NamedTuple

from spawnlaunch import cpuset
from spawnlaunch.cpuset import CpuSetError
from spawnlaunch.world.managers.slurm import lists
from spawnlaunch.world.managers.slurm.lists import ListError
from tests.fuzz.engine import Subject, once_in
from tests.fuzz.values import slip, text

MOST = 5000  # of what a list names, to compare


class Case(NamedTuple):
    """A text, and what it means, where that is known."""

    kind: str  # "hosts", "tasks", "cpus" or "mask"
    text: str
    meaning: list[str] | list[int] | frozenset[int] | None


def draw(random: Random) -> Case:
    case = random.choice([hosts, tasks, cpus, mask])(random)
    if once_in(random, 3):
        return case
    damaged = case.text
    for _ in range(random.choice([0, 1, 1, 2, 5])):
        damaged = slip(random, damaged)
    return Case(case.kind, damaged if damaged != case.text else text(random), None)


def hosts(random: Random) -> Case:
    """Entries of names and brackets, and the hosts that they stand for."""
    entries, meaning = [], []
    for _ in range(random.randint(1, 4)):
        entry, named = random.choice([one_host, several_hosts])(random)
        entries.append(entry)
        meaning += named
    return Case("hosts", random.choice([",", " ", ",,"]).join(entries), meaning)


def one_host(random: Random) -> tuple[str, list[str]]:
    name = random.choice(["login", "n-7", "a.b", "x1000c0", "0"])
    return name, [name]


def several_hosts(random: Random) -> tuple[str, list[str]]:
    """The last bracket of a name turns fastest, then the first, the second and so on."""
    brackets = [bracket(random) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    names = [random.choice(["n", "rack-", "gpu0", "a.b"]) for _ in brackets]
    suffix = random.choice(["", "", "-ib", ".cluster"])
    entry = "".join(f"{name}[{said}]" for name, (said, _) in zip(names, brackets, strict=True))
    *slow, fast = [numbers for _, numbers in brackets]
    turning = ((*reversed(others), last) for *others, last in product(*reversed(slow), fast))
    hosts = ["".join(map("".join, zip(names, each, strict=True))) + suffix for each in turning]
    return entry + suffix, hosts


def bracket(random: Random) -> tuple[str, list[str]]:
    """What stands between two brackets, and its numbers."""
    said, meaning = [], []
    for _ in range(random.randint(1, 3)):
        low, width = random.choice([0, 1, 8, 98, 995]), random.choice([1, 1, 3, 5])
        first = f"{low:0{width}d}"
        count, step = random.randint(1, 6), random.choice([1, 1, 2, 5])
        last = low + (count - 1) * step
        numbers = [f"{low + i * step:0{len(first)}d}" for i in range(count)]
        if count == 1 and step == 1:
            said.append(first)
        else:
            said.append(f"{first}-{last}" + (f":{step}" if step > 1 else ""))
        meaning += numbers
    return ",".join(said), meaning


def tasks(random: Random) -> Case:
    said, meaning = [], []
    for _ in range(random.randint(1, 5)):
        each, nodes = random.choice([1, 2, 8, 128]), random.choice([1, 1, 2, 40])
        said.append(f"{each}(x{nodes})" if nodes > 1 or once_in(random, 5) else f"{each}")
        meaning += [each] * nodes
    return Case("tasks", ",".join(said), meaning)


def cpus(random: Random) -> Case:
    said, meaning = [], set()
    for _ in range(random.randint(1, 6)):
        low, count = random.choice([0, 1, 7, 64, 1000]), random.randint(1, 40)
        some = set(range(low, low + count))
        entry = f"{low}-{low + count - 1}" if count > 1 else f"{low}"
        if count > 1 and once_in(random, 4):
            group = random.randint(1, 9)
            used = random.randint(1, group)
            entry += f":{used}/{group}"
            some = {cpu for cpu in some if (cpu - low) % group < used}
        said.append(entry)
        meaning |= some
    return Case("cpus", random.choice([",", " "]).join(said), frozenset(meaning))


def mask(random: Random) -> Case:
    meaning = {random.choice([0, 5, 31, 32, 63, 64, 200]) for _ in range(random.randint(1, 6))}
    bits = sum(2**cpu for cpu in meaning)
    words = [f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(224, -1, -32)]
    plain = f"{bits:x}"
    said = random.choice([",".join(words), plain, f"0x{plain}", f"0X{plain.upper()}"])
    return Case("mask", said, frozenset(meaning))


def judge(case: Case) -> None:
    found: object
    try:
        found = READ[case.kind](case.text)
    except (ListError, CpuSetError) as error:
        found = error
    if case.meaning is not None:
        assert found == case.meaning
    if isinstance(found, Exception):
        assert 0 < len(str(found)) < 2 * len(case.text) + 1000
    if isinstance(found, frozenset):
        assert cpuset.parse(cpuset.format(found)) == found
        assert cpuset.parse_mask(cpuset.format_mask(found)) == found


def read_hosts(said: str) -> list[str]:
    """All hosts, or the first of very many; by whatever way they are asked for."""
    count = lists.count(said)
    found = list(islice(lists.hosts(said), MOST))
    assert len(found) == min(count, MOST)
    assert lists.first_host(said) == found[0]
    if count <= MOST:
        assert lists.expand(said) == found
    return found


def read_tasks(said: str) -> list[int]:
    """Of each node, or of the first of very many."""
    runs = list(lists.runs(said))
    nodes = sum(times for _, times in runs)
    found = [lists.tasks_on(said, node) for node in range(min(nodes, 200))]
    assert nodes > 200 or sum(found) == sum(tasks * times for tasks, times in runs)
    return found


READ = {
    "hosts": read_hosts,
    "tasks": read_tasks,
    "cpus": cpuset.parse,
    "mask": cpuset.parse_mask,
}

LISTS = Subject(draw, judge)
