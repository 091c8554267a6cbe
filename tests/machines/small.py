"""Small machines, each the least that shows one kind of what people have.

Addresses, sizes and distances are invented.
"""

from tests.machines.tree import Gpu, Machine, cores

TWO_NODES = {0: "0-1", 1: "2-3"}


def small(
    count: int, numa: dict[int, str] | None = None, gpus: tuple[Gpu, ...] = (), **more: object
) -> Machine:
    """A machine of that many cores with a thread each; one NUMA node has all unless told."""
    homes = {0: f"0-{count - 1}"} if numa is None else numa
    return Machine("small", "invented", cores(count), homes, gpus=gpus, **more)  # type: ignore[arg-type]


ANYWHERE = Gpu(-1, "0-3")
AWAY = small(4, TWO_NODES, (Gpu(0, "0-1"), Gpu(1, "2-3")))
# Nodes 0 and 1 are near each other, and so are 2 and 3.
IN_PAIRS = {0: "10 12 32 32", 1: "12 10 32 32", 2: "32 32 10 12", 3: "32 32 12 10"}
PAIRS = small(
    8, {0: "0-1", 1: "2-3", 2: "4-5", 3: "6-7"}, (Gpu(1, "2-3"), Gpu(3, "6-7")), distances=IN_PAIRS
)
THREE = {0: "0-3", 1: "4-7", 2: "8-11"}
MIXED = small(
    12, THREE, (*(Gpu(i, cpus) for i, cpus in THREE.items()), Gpu(-1, "0-11")),
    l3=tuple(THREE.values()),
)  # fmt: skip
OF_INTEL = {"sys/devices/cpu_core/cpus": "0-1", "sys/devices/cpu_atom/cpus": "2-3"}
HYBRID = small(4, None, (ANYWHERE, ANYWHERE), l3=("0-3",), files=OF_INTEL)
SIX = small(6, l3=("0-5",), files=OF_INTEL | {"sys/devices/cpu_atom/cpus": "2-5"})
ALL = tuple(
    machine._replace(name=name)
    for name, machine in {
        "a device on each of two nodes": AWAY,
        "two devices on the second of two nodes": AWAY._replace(gpus=AWAY.gpus[1:] * 2),
        "devices on two of four nodes": PAIRS,
        "a device on each of three nodes, and one anywhere": MIXED,
        "two fast and two slow cores": HYBRID,
        "two fast and four slow cores": SIX,
    }.items()
)
