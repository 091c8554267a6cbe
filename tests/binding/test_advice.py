"""What cures a mask that is too narrow, at each limit between two answers."""

import pytest

from spawnlaunch.base.cpuset import EMPTY, CpuSet
from spawnlaunch.binding.apply import Binding
from spawnlaunch.binding.placement import CONTAINED, UNMASKED, of_mask, report_line, wider
from spawnlaunch.node import Device, Node, Numa
from tests.support.slurm_variables import OF_A_SHELL, OF_A_TASK


def machine(cores: int, allowed: int, group: CpuSet | None = None) -> Node:
    """Cores of one thread, of which the first ones are allowed."""
    every = frozenset(range(cores))
    return Node(
        cpus_allowed=frozenset(range(allowed)), cpus_online=every, cpus_cgroup=group,
        cores=tuple(frozenset({cpu}) for cpu in range(cores)),
    )  # fmt: skip


def binding(threads: int, device: int | None = None) -> Binding:
    return Binding(0, device, frozenset({0}), EMPTY, threads, "local", "")


def test_a_mask_is_named_where_ranks_get_one_core_and_more_are_there() -> None:
    for cores in range(1, 9):
        for allowed in range(cores + 1):
            for ranks in range(1, 9):
                for threads in (1, 2):
                    node = machine(cores, allowed)
                    lines = of_mask(node, [binding(threads)] * ranks, ranks, {})
                    has_room = threads > 1 or cores < 2 * ranks
                    narrow = 0 < allowed < cores and not (has_room and allowed >= ranks)
                    assert bool(lines) == narrow
                    if narrow:
                        which = "1 core (CPUs 0)" if allowed == 1 else f"{allowed} cores (CPUs 0-"
                        assert lines[0].startswith(f"the mask allows {which}")


def test_a_mask_beside_the_device_is_not_called_wrong() -> None:
    near, away = Device(0, "0000:01:00.0", "nvidia"), Device(1, "0000:02:00.0", "nvidia")
    devices = (near._replace(local_cpus=frozenset({1, 5})), away._replace(local_cpus=EMPTY))
    node = machine(8, 2)._replace(devices=devices)
    (line,) = of_mask(node, [binding(2, 0), binding(2, 1), binding(2)], 3, {})
    assert line.startswith("the mask allows 2 cores (CPUs 0-1) of 8,")
    assert line.endswith(UNMASKED)
    assert of_mask(node, [binding(2, 0), binding(2, 1)], 2, {}) == []


TYPE, LIST, HAS = "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST", "SLURM_CPUS_ON_NODE"
BOUND = OF_A_TASK | {TYPE: "mask_cpu:"}
LARGER = "in a job with more CPUs (sbatch --exclusive)"
MORE = f"with srun --cpus-per-task=N, or {LARGER}"
UNBOUND = f"with srun --cpu-bind=none, or {MORE}"


# CPUs 0 and 1 of 8 are allowed.
@pytest.mark.parametrize(
    ("environ", "group", "near", "cure"),
    [
        ({}, None, EMPTY, UNMASKED),
        ({}, frozenset({0, 1}), EMPTY, CONTAINED),
        ({}, frozenset({0, 1, 2}), EMPTY, UNMASKED),
        ({}, frozenset({0, 1, 2}), frozenset({2, 3}), UNMASKED),
        ({}, frozenset({0, 1, 2}), frozenset({3}), CONTAINED),
        (OF_A_SHELL, None, EMPTY, LARGER),
        (OF_A_TASK, frozenset({0, 1}), frozenset({3}), MORE),
        (BOUND, None, EMPTY, UNBOUND),
        ({**BOUND, HAS: "3"}, None, EMPTY, UNBOUND),
        ({**BOUND, HAS: "2"}, None, EMPTY, MORE),  # all that the step has
        ({**OF_A_TASK, TYPE: "none", HAS: "3"}, None, EMPTY, UNMASKED),
        ({**BOUND, HAS: "3", LIST: "0x30,0x1"}, None, EMPTY, UNBOUND),
        ({**BOUND, HAS: "3", LIST: "0x7"}, None, EMPTY, UNMASKED),  # as taskset has narrowed it
    ],
)
def test_the_cure_is_of_who_has_set_the_mask(
    environ: dict[str, str], group: CpuSet | None, near: CpuSet, cure: str
) -> None:
    assert wider(machine(8, 2, group), environ, near) == cure


def test_the_line_of_a_rank_counts_its_cores_and_names_its_host() -> None:
    node = machine(4, 4)._replace(numa=(Numa(0, frozenset({0, 1}), None, (), "cpu"),))
    two = binding(2)._replace(cpus=frozenset({0, 1}), memory_nodes=frozenset({0}))
    parts = report_line(5, two, node, 3, "n1").split("  ")
    assert parts == ["rank 5", "n1", "local 0", "numa 0", "cpus 0-1 (2 cores)", "mem 0 omp 3"]
    assert "cpus 3 (1 core)" in report_line(5, two._replace(cpus=frozenset({3})), node, 3)
    assert "numa -" in report_line(5, two._replace(cpus=frozenset({3})), node, 3)
