"""What is found wrong, from the facts of all ranks."""

from spawnlaunch.check.facts import Facts
from spawnlaunch.check.rules import of_bindings

GOOD = Facts(
    rank=0, local_rank=0, host="node0", pid=1,
    device=0, device_address="0000:c1:00.0", device_cpus="0-7", device_numa=0, visible_devices=2,
    cpus_at_start="0-7", cpus="0-7", threads=("0-7",), loader_cpus="0-7", cores=8,
    cores_of_node=16, numa="0", memory="preferred 0", memory_near="0", memory_allowed="0-1",
    omp_threads=8, threads_by=(), launched=False, divided_cpus="0-15", by_default="0-7",
    default_cores=8, best_cores=8, wider="", nearer="", isolated="", openmp=(), typed=(),
)  # fmt: skip


def on(facts: Facts, cpus: str, cores: int, numa: str) -> Facts:
    """The same rank, from start to end on other CPUs."""
    return facts._replace(
        cpus_at_start=cpus, cpus=cpus, threads=(cpus,), loader_cpus=cpus, cores=cores, numa=numa,
        omp_threads=cores,
    )  # fmt: skip


OTHER = on(GOOD, "8-15", 8, "1")._replace(
    rank=1, local_rank=1, device=1, device_cpus="8-15", device_numa=1, memory="preferred 1",
    memory_near="1", by_default="8-15",
)  # fmt: skip


def rules(*everyone: Facts) -> list[tuple[str, tuple[int, ...]]]:
    return [(finding.name, finding.ranks) for finding in of_bindings(everyone)]


def test_ranks_that_share_cpus_are_named_together():
    third = on(OTHER._replace(rank=2, local_rank=2), "7-9", 3, "0-1")._replace(
        device_cpus=None, device=2
    )
    assert rules(GOOD, OTHER, third) == [("shared-cores", (0, 1, 2))]


def test_a_device_whose_place_is_unknown_is_not_judged():
    unknown = GOOD._replace(device_cpus=None, device_numa=None)
    assert rules(on(unknown, "8-15", 8, "1")) == []


def test_cpus_of_the_devices_numa_node_are_near_enough():
    assert rules(GOOD._replace(device_cpus="0-3")) == []


def test_one_core_of_many_is_too_little():
    assert rules(on(GOOD, "0", 1, "0"), on(OTHER, "8", 1, "1")) == [("one-core", (0, 1))]


def test_one_core_each_is_all_that_a_small_machine_has():
    small = [on(GOOD, "0", 1, "0"), on(OTHER, "8", 1, "1")]
    assert rules(*(facts._replace(cores_of_node=2) for facts in small)) == []
