"""Who gets which CPUs on the smallest machines that show a kind of what people have."""

from collections.abc import Sequence

import pytest

from spawnlaunch.node import Kind
from tests.machines.small import AWAY, HYBRID, MIXED, OF_INTEL, PAIRS, SIX, small
from tests.machines.tree import Gpu, Machine, node_of
from tests.support.explained import explain
from tests.support.slurm_variables import of_task

FREQUENCY, CAPACITY = "cpufreq/cpuinfo_max_freq", "cpu_capacity"
UNLIKE = MIXED._replace(  # two fast and two slow cores on each node
    of_cpus={FREQUENCY: {"0-1,4-5,8-9": 4600000, "2-3,6-7,10-11": 2300000}}
)


def of_speeds(file: str, *speeds: int) -> Machine:
    """As many cores, each with one of these numbers in its file."""
    return small(len(speeds), of_cpus={file: {str(cpu): s for cpu, s in enumerate(speeds)}})


@pytest.mark.parametrize(
    ("machine", "arguments", "cpus"),
    [
        # Ranks with no allowed CPU next to the device share in, or take what is left, the nearest.
        (AWAY, "--allowed-cpus 0-1 --nproc gpu", "0 1"),
        (AWAY, "--allowed-cpus 2-3 --nproc gpu", "2 3"),
        (AWAY._replace(gpus=AWAY.gpus[1:] * 2), "--allowed-cpus 0-1 --nproc gpu", "0 1"),
        (PAIRS, "--allowed-cpus 0-1,4-5 --nproc gpu", "0-1 4-5"),
        (PAIRS._replace(gpus=PAIRS.gpus[::-1]), "--allowed-cpus 0-1,4-5 --nproc gpu", "4-5 0-1"),
        (PAIRS, "--allowed-cpus 2-5 --nproc gpu", "2-3 4-5"),
        (PAIRS, "--allowed-cpus 0-3 --nproc gpu", "2-3 0-1"),
        (PAIRS, "--allowed-cpus 2 --nproc gpu", "2 2"),
        # Those of known and of unknown places too, and all of them as evenly as can be.
        (MIXED, "--nproc gpu", "0-2 4-6 8-10 3,7,11"),
        (MIXED, "--nproc gpu --allowed-cpus 0-3", "0 1 2 3"),
        # Each has its part of the fast cores and of the slow ones; fewer threads take fast ones.
        (HYBRID, "--nproc gpu", "0,2 1,3"),
        (HYBRID, "--nproc 2 --threads 1", "0 1"),
        (HYBRID, "--nproc 1 --threads 3", "0-2"),
        (HYBRID, "--nproc 2 --allowed-cpus 1-3", "1-2 3"),
        (SIX, "--nproc 3", "0,2 1,3 4-5"),
        # So do ranks that may use the same cores and others beside them.
        (UNLIKE, "--nproc gpu", "0,2-3 4-6 8-10 1,7,11"),
        (UNLIKE, "--nproc gpu --allowed-cpus 0-7", "0,2 4,6 1,3 5,7"),
        (of_speeds(CAPACITY, 400, 1024), "--nproc 1 --threads 1", "1"),
        (of_speeds(FREQUENCY, 2200000, 2200000, 3600000, 3600000), "--nproc 2", "0,2 1,3"),
    ],
)  # fmt: skip
def test_ranks_have_cpus(machine: Machine, arguments: str, cpus: str) -> None:
    workers = explain(machine, arguments)["workers"]
    assert " ".join(worker["cpus"] for worker in workers) == cpus


def tasks(machine: Machine, sees: Sequence[str], arguments: str, **more: str) -> list[str]:
    """The CPUs of Slurm's tasks, each of which sees these devices; "": all."""
    found = []
    for rank, devices in enumerate(sees):
        environ = {**of_task(rank, len(sees)), **more}
        environ |= {"CUDA_VISIBLE_DEVICES": devices} if devices else {}
        found += [worker["cpus"] for worker in explain(machine, arguments, environ)["workers"]]
    return found


@pytest.mark.parametrize("sees", [("", ""), ("0,1", "0,1"), ("0", "1")])
def test_a_task_away_from_its_device_leaves_the_other_alone(sees: tuple[str, str]) -> None:
    """As a launcher of both does: the manager says which devices the step has."""
    assert tasks(AWAY, sees, "--allowed-cpus 0-1", SLURM_STEP_GPUS="0,1") == ["0", "1"]


def test_a_task_leaves_cores_to_the_one_whose_device_is_anywhere() -> None:
    for seen in (("1", "3"), ("1,3", "1,3")):
        assert tasks(MIXED, seen, "") == ["4-6", "3,7,11"]
    assert tasks(MIXED, ["1,2,3"] * 3, "--allowed-cpus 4-11") == ["4-6", "8-10", "7,11"]


def test_a_task_that_sees_the_devices_beside_it_keeps_its_share_of_the_node() -> None:
    """srun --gpu-bind=closest shows each task the devices of its NUMA node."""
    four = small(8, {0: "0-3", 1: "4-7"}, (*[Gpu(0, "0-3")] * 2, *[Gpu(1, "4-7")] * 2))
    assert tasks(four, ["0,1", "0,1", "2,3", "2,3"], "") == ["0-1", "2-3", "4-5", "6-7"]


@pytest.mark.parametrize(
    ("machine", "kinds"),
    [
        (HYBRID, {"cpu_core": {0, 1}, "cpu_atom": {2, 3}}),
        (
            small(2, l3=("0",), files={
                "sys/devices/cpu_core/cpus": "0", "sys/devices/cpu_lowpower/cpus": "1"}),
            {"cpu_core": {0}, "cpu_lowpower": {1}},
        ),
        (  # low-power cores among the small ones, which have no L3
            small(3, l3=("0-1",), files={
                "sys/devices/cpu_core/cpus": "0", "sys/devices/cpu_atom/cpus": "1-2"}),
            {"cpu_core": {0}, "cpu_atom": {1}, "cpu_lowpower": {2}},
        ),
        (small(4, files=OF_INTEL), {"cpu_core": {0, 1}, "cpu_atom": {2, 3}}),  # no L3 is known
        (
            of_speeds(CAPACITY, 400, 1024, 760, 1010),
            {"capacity 1024": {1, 3}, "capacity 760": {2}, "capacity 400": {0}},
        ),
        (of_speeds(FREQUENCY, 5700000, 5200000, 4900000), {}),  # favoured cores
        (of_speeds(FREQUENCY, 5700000, 3300000), {"5700 MHz": {0}, "3300 MHz": {1}}),
        (of_speeds("acpi_cppc/highest_perf", 166, 236), {}),
        (small(2, of_cpus={FREQUENCY: {"0": 5700000}}), {}),  # one is not known
    ],
)  # fmt: skip
def test_kinds_of_cores_are_told_the_fastest_first(
    machine: Machine, kinds: dict[str, set[int]]
) -> None:
    expected = tuple(Kind(name, frozenset(cpus)) for name, cpus in kinds.items())
    assert node_of(machine).kinds == expected


def test_kinds_of_cores_are_explained() -> None:
    assert explain(HYBRID, "--nproc 2")["node"]["kinds"] == [
        {"name": "cpu_core", "cpus": "0-1"},
        {"name": "cpu_atom", "cpus": "2-3"},
    ]
