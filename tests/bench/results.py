"""Results of benches that nobody ran: bindings from a plan, samples from a ratio."""

from collections.abc import Mapping, Sequence
from typing import Any

from spawnlaunch.base import cpuset
from spawnlaunch.bench import arms, results
from spawnlaunch.bench.arms import ArmRequest
from spawnlaunch.bench.effort import Effort
from spawnlaunch.bench.results import Arm, BoundRank, Measured, Result, Taken
from spawnlaunch.bench.workloads import NAMES
from spawnlaunch.binding import plan
from spawnlaunch.binding.apply import Binding
from spawnlaunch.binding.placement import device_name
from spawnlaunch.cli.values import Policy
from spawnlaunch.node import Node
from spawnlaunch.node.visible import visible
from tests.bench.synthetic import rounds


def _about() -> dict[str, Any]:
    """A new one for each result: tests change it."""
    return {
        "date": "2026-11-21T12:00:00+0000",
        "command": "python -m spawnlaunch.bench",
        "versions": {"torch": "2.13.0"},
        "rounds": 60,
        "budget_s": 300.0,
        "warm_up": 1,
        "seconds": 0.3,
        "device": "CPU",
    }


def on(
    node: Node,
    ranks: int,
    ratios: Mapping[str, Mapping[str, float]],
    names: Sequence[str] = arms.DEFAULT,
) -> Result:
    """A result on this node; `ratios` are, by workload and arm, what an arm is worth."""
    seen = visible(node, {})

    def planned(arm: ArmRequest) -> tuple[Binding, ...]:
        return plan.plan(node, seen, ranks, Policy(arm.flags[1])).bindings

    asked = {name: arms.of_name(name) for name in names}
    made = arms.on_node(node, list(asked.values()), planned)
    kept = {name: its.bindings for name, its in made.items() if its.bindings}
    about = _about()
    about["workloads"] = [NAMES[name]._asdict() for name in ratios]
    return Result(
        about=about,
        nodes=[
            {
                "host": "node0",
                "processor": "a processor",
                "kernel": "6.1",
                "load": 0.0,
                "allowed": cpuset.format(node.cpus_allowed),
            }
        ],
        against=arms.AUTO if arms.AUTO in kept else arms.UNPINNED,
        arms=[Arm(name, asked[name].typed(its), _ranks(node, its)) for name, its in kept.items()],
        omitted={name: its.missing for name, its in made.items() if its.missing},
        not_run={},
        measured=[_measured(name, worth, ranks, list(kept)) for name, worth in ratios.items()],
    )


def write(result: Result, path: str) -> None:
    """The file of a bench with this result."""
    file = results.Recorder(path)
    file.write(results.BENCH, results.head(result))
    for measured in result.measured:
        for each in measured.taken:
            file.take(each)


def _ranks(node: Node, bindings: Sequence[Binding]) -> tuple[BoundRank, ...]:
    return tuple(
        BoundRank(
            rank,
            "node0",
            rank,
            device_name(node, each.device),
            cpuset.format(each.cpus),
            cpuset.format(each.memory_nodes),
            each.threads,
            each.locality,
        )
        for rank, each in enumerate(bindings)
    )


def _measured(name: str, worth: Mapping[str, float], ranks: int, names: list[str]) -> Measured:
    workload = NAMES[name]
    samples = {
        arm: _samples(worth.get(arm, 1.0), ranks, workload, i) for i, arm in enumerate(names)
    }
    return Measured(workload, tuple(names), taken(name, {"": samples}))


def taken(workload: str, series: dict[str, dict[str, list[list[float | None]]]]) -> list[Taken]:
    """The samples of a workload, round by round."""
    first = next(iter(series.values()))
    rounds = len(next(iter(first.values())))
    return [
        Taken(
            workload,
            number,
            arm,
            tuple(
                {key: each for key, its in series.items() if (each := its[arm][number][rank])}
                for rank in range(len(first[arm][number]))
            ),
            tuple(Effort(0.3, ran_s=0.3, waited_s=0.0) for _ in first[arm][number]),
        )
        for number in range(rounds)
        for arm in first
    ]


def _samples(worth: float, ranks: int, workload, which: int) -> list[list[float | None]]:
    """Rounds of ranks that are alike but for noise, and all as good as `worth` says."""
    better = worth if workload.higher_is_better else 1 / worth
    seeds = range(ranks * which, ranks * which + ranks)
    by_rank = [rounds(better, seed, noise=0.002, drift=0, count=60)[0] for seed in seeds]
    return [list(values) for values in zip(*by_rank, strict=True)]
