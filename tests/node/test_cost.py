"""Reading and planning are the launcher's cost, on the largest machines too.

The limits are what is done today, with a tenth more calls for other versions of Python; how long
it takes is measured by benchmarks/plan.py.
"""

from pathlib import Path

import pytest

from benchmarks import plan as benchmark
from spawnlaunch import node as nodes
from spawnlaunch.binding.plan import plan
from spawnlaunch.node.visible import visible
from tests import machines
from tests.machines.tree import Machine, build
from tests.support.effort import effort


@pytest.mark.parametrize(
    ("machine", "files", "calls_to_read", "calls_to_plan"),
    [(machines.DGX_A100, 476, 11_200, 3_570), (benchmark.largest(), 1_286, 37_200, 24_600)],
    ids=["an ordinary node", "1,024 CPUs and 64 devices"],
)
def test_a_node_costs_no_more_than_today(
    tmp_path: Path, machine: Machine, files: int, calls_to_read: int, calls_to_plan: int
) -> None:
    root = str(build(tmp_path, machine, benchmark.BYSTANDERS))
    reading = effort(lambda: nodes.read(root))
    assert reading.opened <= files
    assert reading.calls <= calls_to_read
    node = nodes.read(root)
    seen = visible(node, {})
    planning = effort(lambda: plan(node, seen, len(seen.devices)))
    assert planning.opened == 0
    assert planning.calls <= calls_to_plan


def test_the_largest_has_1024_cpus_and_64_devices() -> None:
    machine = benchmark.largest()
    assert (len(machine.cores) * 2, len(machine.gpus)) == (1024, 64)
