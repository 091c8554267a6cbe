"""How long reading a node and planning its ranks takes.

    python -m benchmarks.plan [--rounds 25] [--write]

Trees of machines are laid out below a temporary directory, with 200 PCI functions that are no
devices. The first reading is printed apart: it pays for imports and a cold cache of this program's
own making, while the kernel makes the files of the real /sys in memory. On this machine hwloc takes
turns with us where it is installed, as the program that a batch script would call.
"""

import os
import shutil
import subprocess
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.report import Section, cell
from spawnlaunch import node as nodes
from spawnlaunch.binding.plan import plan
from spawnlaunch.node.visible import visible
from tests.node import machines
from tests.node.tree import Gpu, Machine, build, cores

BYSTANDERS = 200
ROUNDS = 25
HWLOC = "hwloc-distrib"


def largest() -> Machine:
    """1,024 CPUs and 64 devices: 16 NUMA nodes of 4 L3 groups of 8 cores."""
    numa = {n: f"{n * 32}-{n * 32 + 31},{512 + n * 32}-{512 + n * 32 + 31}" for n in range(16)}
    l3 = tuple(f"{g * 8}-{g * 8 + 7},{512 + g * 8}-{512 + g * 8 + 7}" for g in range(64))
    packages = tuple(
        f"{p * 128}-{p * 128 + 127},{512 + p * 128}-{512 + p * 128 + 127}" for p in range(4)
    )
    gpus = tuple(Gpu(i // 4, numa[i // 4]) for i in range(64))
    return Machine("largest", "nobody's", cores(512, 2), numa, l3, packages, gpus)


def time_hwloc(ranks: int) -> float:
    """Milliseconds of hwloc, a program, to distribute ranks over this machine."""
    start = time.perf_counter()
    subprocess.run([HWLOC, str(ranks)], check=True, stdout=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - start)


def time_both(
    root: str, rounds: int, another: Callable[[], None] = lambda: None
) -> tuple[list[float], list[float]]:
    """Milliseconds for reading and for planning, of each round; `another` has turns in between."""
    reading, planning = [], []
    for _ in range(rounds):
        another()
        start = time.perf_counter()
        node = nodes.read(root)
        read = time.perf_counter()
        seen = visible(node, {})
        plan(node, seen, max(1, len(seen.devices)))
        planned = time.perf_counter()
        reading.append(1e3 * (read - start))
        planning.append(1e3 * (planned - read))
    return reading, planning


def rows(name: str, root: str, rounds: int) -> Iterator[list[str]]:
    """The machine whose files lie below `root`, and what hwloc takes where that is this machine."""
    node = nodes.read(root)
    others: list[float] = []
    takes_turns = root == "/" and shutil.which(HWLOC) is not None

    def hwloc() -> None:
        if takes_turns:
            others.append(time_hwloc(os.cpu_count() or 1))

    reading, planning = time_both(root, rounds, hwloc)
    both = [one + other for one, other in zip(reading, planning, strict=True)]
    counts = (str(len(node.cpus_online)), str(len(node.devices)))
    yield [name, *counts, cell(reading), cell(planning), cell(both), f"{both[0]:.2f}"]
    if others:
        yield [f"{name}, {HWLOC}", *counts, "", "", cell(others), f"{others[0]:.2f}"]


def measure(options: Namespace) -> Section:
    """This machine, published ones, and one that is larger than any of them."""
    table = list(rows("this machine", "/", options.rounds))
    for machine in (*machines.ALL, largest()):
        with tempfile.TemporaryDirectory() as folder:
            root = str(build(Path(folder), machine, BYSTANDERS))
            table += rows(machine.name, root, options.rounds)
    return Section(
        "plan",
        "Reading a node and planning its ranks",
        f"""One rank per device, {options.rounds} rounds, in ms. All machines but this one are laid
        out in files, with {BYSTANDERS} PCI functions that are no devices. {HWLOC} distributes one
        rank per CPU; its time is that of the whole program.""",
        ["machine", "CPUs", "devices", "read", "plan", "both", "the first time"],
        table,
    )


if __name__ == "__main__":
    report.main("plan", __doc__, measure, ROUNDS)
