"""What changed from one result to another: --compare OLD NEW. Pure."""

from collections.abc import Iterator

from spawnlaunch.bench import stats
from spawnlaunch.bench.result import Arm, Measured, Result, summed_up
from spawnlaunch.bench.table import aligned, notes, short, title, verdict
from spawnlaunch.bench.workloads import Workload

COLUMNS = ("arm", "old", "new", "ratio", "95 %", "p", "verdict")


def page(old: Result, new: Result) -> Iterator[str]:
    """For each workload and arm that both have, the new against the old."""
    yield from _differences(old, new)
    theirs = {each.workload.name: each for each in old.measured}
    for measured in new.measured:
        before = theirs.get(measured.workload.name)
        if before is None:
            yield f"{measured.workload.name} is only in the new one"
        elif before.workload != measured.workload:
            both = f"{_what(before.workload)}, now {_what(measured.workload)}"
            yield f"{measured.workload.name} is not the same: {both}"
        else:
            yield from _block(before, measured, new.seed)
    ours = {each.workload.name for each in new.measured}
    yield from (f"{name} is only in the old one" for name in theirs if name not in ours)


def _block(old: Measured, new: Measured, seed: int) -> Iterator[str]:
    workload = new.workload
    before, after = summed_up(old), summed_up(new)
    comparisons = []
    yield ""
    yield title(workload)
    for series in (name for name in after if name in before):
        cells: list[tuple[str, ...]] = [COLUMNS]
        for arm in (name for name in after[series] if name in before[series]):
            values, others = after[series][arm], before[series][arm]
            found = stats.unpaired(values, others, workload.higher_is_better, seed)
            comparisons.append(found)
            cells.append(
                (
                    arm,
                    short(stats.middle(others)),
                    short(stats.middle(values)),
                    f"{found.ratio:.3f}",
                    f"{found.low:.3f} to {found.high:.3f}",
                    f"{found.p:.4f}",
                    verdict(found),
                )
            )
        if series:
            yield f"  {series}"
        yield from aligned(cells)
    yield from notes(comparisons)


def _what(workload: Workload) -> str:
    return f"{workload.about} in {workload.unit}"


def _differences(old: Result, new: Result) -> Iterator[str]:
    """What else is different: then a change may be due to it."""
    pairs = [
        (name, old.about["versions"].get(name), version)
        for name, version in new.about["versions"].items()
    ]
    pairs += [("date", old.about["date"], new.about["date"])]
    pairs += [(name, old.about[name], new.about[name]) for name in ("device", "seconds")]
    pairs += [("nodes", _nodes(old), _nodes(new))]
    pairs += [("ranks", _ranks(old), _ranks(new))]
    yield from (f"{name}: {before}, now {now}" for name, before, now in pairs if before != now)
    for arm in new.arms:
        twin = next((each for each in old.arms if each.name == arm.name), None)
        if twin is not None and _bindings(twin) != _bindings(arm):
            yield f"{arm.name}: the ranks are bound otherwise than before"


def _bindings(arm: Arm) -> list[tuple[str, str, int]]:
    return [(rank.cpus, rank.memory_nodes, rank.threads) for rank in arm.ranks]


def _nodes(result: Result) -> str:
    return ", ".join(
        f"{node['host']} ({node['processor']}, Linux {node['kernel']})" for node in result.nodes
    )


def _ranks(result: Result) -> int:
    return len(result.arms[0].ranks) if result.arms else 0
