"""Results of benches that nobody ran: seats from a plan, samples from a ratio."""

from collections.abc import Mapping

from spawnlaunch.bench import arms
from spawnlaunch.bench.result import Arm, Measured, Result, Seat
from spawnlaunch.bench.workloads import NAMES
from spawnlaunch.binding import plan
from spawnlaunch.binding.picture import picture
from spawnlaunch.binding.policy import Policy
from spawnlaunch.binding.report import device_name
from spawnlaunch.node import Node, cpuset
from spawnlaunch.node.visible import visible
from tests.bench.synthetic import rounds


def on(node: Node, ranks: int, ratios: Mapping[str, Mapping[str, float]]) -> Result:
    """A result on this node; `ratios` are, by workload and arm, what an arm is worth."""
    seen = visible(node, {})
    made = arms.on_node(
        node,
        node.cpus_allowed,
        arms.DEFAULT,
        lambda name: plan.plan(node, seen, ranks, Policy(name)).bindings,
    )
    kept = {name: its.bindings for name, its in made.items() if its.bindings}
    return Result(
        about={
            "date": "2026-11-21T12:00:00+0000",
            "command": "python -m spawnlaunch.bench",
            "versions": {"torch": "2.13.0"},
            "seed": 0,
            "rounds": 12,
            "warm_up": 1,
            "seconds": 0.3,
        },
        nodes=[
            {
                "host": "node0",
                "processor": "a processor",
                "kernel": "6.1",
                "pictures": {
                    name: picture(node, its, node.cpus_allowed) for name, its in kept.items()
                },
            }
        ],
        against=arms.UNPINNED,
        arms=[
            Arm(
                name,
                arms.flag(name, its),
                tuple(
                    Seat(
                        rank,
                        "node0",
                        rank,
                        device_name(node, seat.device),
                        cpuset.format(seat.cpus),
                        cpuset.format(seat.memory_nodes),
                        seat.threads,
                        seat.locality,
                    )
                    for rank, seat in enumerate(its)
                ),
            )
            for name, its in kept.items()
        ],
        left_out={name: its.missing for name, its in made.items() if its.missing},
        not_run={},
        measured=[
            Measured(
                NAMES[workload],
                {
                    "": {
                        name: _samples(worth.get(name, 1.0), ranks, NAMES[workload])
                        for name in kept
                    }
                },
            )
            for workload, worth in ratios.items()
        ],
    )


def _samples(worth: float, ranks: int, workload) -> list[list[float | None]]:
    """Rounds of ranks that are alike but for noise, and all as good as `worth` says."""
    better = worth if workload.higher_is_better else 1 / worth
    by_rank = [rounds(better, seed, noise=0.01, drift=0.02)[0] for seed in range(ranks)]
    return [list(values) for values in zip(*by_rank, strict=True)]
