"""The time to read a node and to plan its ranks.

    python -m benchmarks.plan [--rounds 25] [--write]

Trees of machines are laid out below a temporary directory, with 200 PCI functions that are no
devices. The first reading is printed apart: it pays for imports and a cold cache of files that this
program has made, while the kernel makes the files of the real /sys in memory. On this machine whole
programs take turns with the reading: the launcher with --explain, and hwloc-distrib where it is
installed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.report import Section, Times, cell
from spawnlaunch import node as nodes
from spawnlaunch.binding.plan import plan
from spawnlaunch.node.visible import visible
from tests import machines
from tests.machines.tree import Gpu, Machine, build, cores

BYSTANDERS = 200
ROUNDS = 25
HWLOC = "hwloc-distrib"
EXPLAIN = "spawnlaunch --explain"


def largest() -> Machine:
    """A machine of 1,024 CPUs and 64 devices: 16 NUMA nodes of 4 L3 groups of 8 cores."""
    numa = {n: f"{n * 32}-{n * 32 + 31},{512 + n * 32}-{512 + n * 32 + 31}" for n in range(16)}
    l3 = tuple(f"{g * 8}-{g * 8 + 7},{512 + g * 8}-{512 + g * 8 + 7}" for g in range(64))
    packages = tuple(
        f"{p * 128}-{p * 128 + 127},{512 + p * 128}-{512 + p * 128 + 127}" for p in range(4)
    )
    gpus = tuple(Gpu(i // 4, numa[i // 4]) for i in range(64))
    return Machine("largest", "nobody's", cores(512, 2), numa, l3, packages, gpus)


def programs(ranks: int) -> dict[str, list[str]]:
    """The programs that distribute so many ranks over this machine, by name."""
    launcher = [sys.executable, "-m", "spawnlaunch", "--nproc", str(ranks)]
    hwloc = {HWLOC: [HWLOC, str(ranks)]} if shutil.which(HWLOC) else {}
    return {EXPLAIN: [*launcher, "--explain", "-m", "this"], **hwloc}


def time_program(words: list[str]) -> float:
    """The milliseconds of a program, from its start to its end."""
    start = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - start)


def time_both(
    root: str, rounds: int, another: Callable[[], None] = lambda: None
) -> tuple[list[float], list[float]]:
    """The milliseconds to read and to plan in each round; `another` takes turns with them."""
    reading, planning = [], []
    for _ in range(rounds):
        another()
        start = time.perf_counter()
        node = nodes.read(root)
        read = time.perf_counter()
        shown = visible(node, {})
        plan(node, shown, max(1, len(shown.devices)))
        planned = time.perf_counter()
        reading.append(1e3 * (read - start))
        planning.append(1e3 * (planned - read))
    return reading, planning


def rows(name: str, root: str, rounds: int) -> Iterator[list[str | Times]]:
    """Yield rows for the machine with files below `root`; for this one whole programs too."""
    node = nodes.read(root)
    rivals = programs(os.cpu_count() or 1) if root == "/" else {}
    others: dict[str, list[float]] = {rival: [] for rival in rivals}

    def take_turns() -> None:
        for rival, words in rivals.items():
            others[rival].append(time_program(words))

    reading, planning = time_both(root, rounds, take_turns)
    both = [read_ms + plan_ms for read_ms, plan_ms in zip(reading, planning, strict=True)]
    counts = (str(len(node.cpus_online)), str(len(node.devices)))
    yield [name, *counts, cell(reading), cell(planning), cell(both), cell(both[:1]), ""]
    for rival, took in others.items():
        yield [f"{name}, {rival}", *counts, "", "", "", "", cell(took)]


def measure(options: Namespace) -> Section:
    """Measure this machine, published ones, and one that is larger than any of them."""
    table = list(rows("this machine", "/", options.rounds))
    for machine in (machines.LUMI, machines.ALPS, largest()):
        with tempfile.TemporaryDirectory() as folder:
            root = str(build(Path(folder), machine, BYSTANDERS))
            table += rows(machine.name, root, options.rounds)
    return Section(
        "plan",
        "Reading a node and planning its ranks",
        f"""One rank per device, {options.rounds} rounds, in ms. All machines but this one are laid
        out in files, with {BYSTANDERS} PCI functions that are no devices. The rows below this
        machine's are whole programs that distribute one rank per CPU: the first starts a Python,
        the second finds no devices.""",
        ["machine", "CPUs", "devices", "read", "plan", "both", "the first time", "whole program"],
        table,
    )


if __name__ == "__main__":
    report.main("plan", __doc__, measure, ROUNDS)
