"""Reading and planning are the launcher's cost, on the largest machines too."""

from pathlib import Path

from benchmarks import plan as benchmark
from tests.node import machines
from tests.node.tree import Machine, build


def fastest(root: Path, machine: Machine) -> float:
    """Milliseconds of the best of a few rounds: the rest is what else this machine does."""
    build(root, machine, benchmark.BYSTANDERS)
    reading, planning = benchmark.time_both(str(root), 7)
    return min(read + plan for read, plan in zip(reading, planning, strict=True))


def test_an_ordinary_node_takes_less_than_15_ms(tmp_path: Path) -> None:
    assert fastest(tmp_path, machines.DGX_A100) < 15


def test_1024_cpus_and_64_devices_take_less_than_100_ms(tmp_path: Path) -> None:
    machine = benchmark.largest()
    assert (len(machine.cores) * 2, len(machine.gpus)) == (1024, 64)
    assert fastest(tmp_path, machine) < 100
