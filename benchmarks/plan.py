"""How long reading a node and planning its ranks takes.

    python -m benchmarks.plan [ROUNDS]

Trees of machines are laid out below a temporary directory, with 200 PCI functions that are no
devices. The first reading is printed apart: it pays for imports and a cold cache of this program's
own making, while the kernel makes the files of the real /sys in memory.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from spawnlaunch import node as nodes
from spawnlaunch.binding.plan import plan
from spawnlaunch.node.visible import visible
from tests.node import machines
from tests.node.tree import Gpu, Machine, build, cores

BYSTANDERS = 200
ROUNDS = 25


def largest() -> Machine:
    """1,024 CPUs and 64 devices: 16 NUMA nodes of 4 L3 groups of 8 cores."""
    numa = {n: f"{n * 32}-{n * 32 + 31},{512 + n * 32}-{512 + n * 32 + 31}" for n in range(16)}
    l3 = tuple(f"{g * 8}-{g * 8 + 7},{512 + g * 8}-{512 + g * 8 + 7}" for g in range(64))
    packages = tuple(
        f"{p * 128}-{p * 128 + 127},{512 + p * 128}-{512 + p * 128 + 127}" for p in range(4)
    )
    gpus = tuple(Gpu(i // 4, numa[i // 4]) for i in range(64))
    return Machine("largest", "nobody's", cores(512, 2), numa, l3, packages, gpus)


def measure(root: str, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds for reading and for planning, of each round."""
    reading, planning = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        node = nodes.read(root)
        read = time.perf_counter()
        seen = visible(node, {})
        plan(node, seen, max(1, len(seen.devices)))
        planned = time.perf_counter()
        reading.append(1e3 * (read - start))
        planning.append(1e3 * (planned - read))
    return reading, planning


def line(name: str, cpus: int, devices: int, times: tuple[list[float], list[float]]) -> str:
    reading, planning = times
    both = [one + other for one, other in zip(reading, planning, strict=True)]
    return (
        f"{name:16} {cpus:5} CPUs {devices:3} devices   read {median(reading):6.2f} ms   "
        f"plan {median(planning):6.2f} ms   both {median(both):6.2f} ms   first {both[0]:6.2f} ms"
    )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    node = nodes.read()
    print(line("this machine", len(node.cpus_online), len(node.devices), measure("/", rounds)))
    for machine in (*machines.ALL, largest()):
        with tempfile.TemporaryDirectory() as folder:
            root = str(build(Path(folder), machine, BYSTANDERS))
            node = nodes.read(root)
            times = measure(root, rounds)
            print(line(machine.name, len(node.cpus_online), len(node.devices), times))


if __name__ == "__main__":
    main()
