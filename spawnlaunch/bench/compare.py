"""What changed from some benches to others: --compare OLD NEW. Pure.

Two occasions differ by themselves: the machine is warmer, its memory laid out otherwise, somebody
else is on the node. Rounds of one bench know nothing of that, so here a bench is one number, the
median of its rounds, and one bench a side cannot tell.
"""

from collections.abc import Iterator, Sequence

from spawnlaunch.bench import results, stats, table, workloads

COLUMNS = ("arm", "old", "new", "ratio", "interval", "verdict")
ONE_RUN = "one bench a side cannot tell"

Medians = dict[str, dict[str, float]]  # by series and arm, of one bench


def page(old: Sequence[results.Result], new: Sequence[results.Result]) -> Iterator[str]:
    """For each workload and arm that all of them have, the new against the old."""
    yield from dict.fromkeys(
        line for one in (*old, *new[:-1]) for line in _differences(one, new[-1])
    )
    shared, absent = _shared(old, new)
    yield from absent
    level = stats.ERROR / max(1, sum(len([*each[-1].values()][-1]) for each in shared.values()))
    for workload, runs in shared.items():
        yield from _block(workload, runs[: len(old)], runs[len(old) :], level)
    if shared and (few := min(len(old), len(new))) < (fewest := stats.fewest_runs(level)):
        yield ""
        yield ONE_RUN if few == 1 else f"{few} benches a side cannot tell"
        yield (
            f"  two occasions differ by themselves; type {fewest} files or more a side, separated\n"
            "  by commas; with fewer workloads and arms, fewer suffice"
        )


def _shared(
    old: Sequence[results.Result], new: Sequence[results.Result]
) -> tuple[dict[workloads.Workload, list[Medians]], list[str]]:
    """By workload what each bench measured, old ones first; and what is not in all of them."""
    shared: dict[workloads.Workload, list[Medians]] = {}
    absent = []
    sides = [[{m.workload.name: m for m in one.measured} for one in side] for side in (old, new)]
    for name in dict.fromkeys(name for side in sides for one in side for name in one):
        found = [[one[name] for one in side if name in one and one[name].rounds] for side in sides]
        runs = [*found[0], *found[1]]
        kinds = list(dict.fromkeys(each.workload for each in runs))
        if not runs:
            absent.append(f"{name} has no whole round in any of them")
        elif len(runs) < len(old) + len(new):
            where = "new" if not found[0] else "old" if not found[1] else ""
            absent.append(f"{name} is only in {f'the {where} one' if where else 'some of them'}")
        elif len(kinds) > 1:
            absent.append(f"{name} is not the same: {_what(kinds[0])}, now {_what(kinds[-1])}")
        else:
            shared[kinds[0]] = [_medians(each) for each in runs]
    return shared, absent


def _medians(measured: results.Measured) -> Medians:
    return {
        series: {arm: stats.middle(values) for arm, values in arms.items()}
        for series, arms in results.summed_up(measured).items()
    }


def _block(
    workload: workloads.Workload, old: Sequence[Medians], new: Sequence[Medians], level: float
) -> Iterator[str]:
    yield ""
    yield table.title(workload)
    for series in (name for name in new[-1] if all(name in one for one in (*old, *new))):
        cells: list[tuple[str, ...]] = [COLUMNS]
        for arm in new[-1][series]:
            if all(arm in one[series] for one in (*old, *new)):
                before, after = ([one[series][arm] for one in side] for side in (old, new))
                found = stats.unpaired(after, before, workload.higher_is_better, level)
                said = table.verdict(found) if found.rounds > 1 else "-"
                middles = (table.short(stats.middle(before)), table.short(stats.middle(after)))
                cells.append((arm, *middles, f"{found.ratio:.3f}", table.interval(found), said))
        if series:
            yield f"  {series}"
        yield from table.aligned(cells)


def _what(workload: workloads.Workload) -> str:
    return f"{workload.about} in {workload.unit}"


def _differences(old: results.Result, new: results.Result) -> Iterator[str]:
    """What else is different: then a change may be due to it."""
    pairs = [
        (name, old.about["versions"].get(name), version)
        for name, version in new.about["versions"].items()
    ]
    pairs += [(name, old.about[name], new.about[name]) for name in ("device", "seconds")]
    pairs += [("nodes", _nodes(old), _nodes(new)), ("ranks", old.ranks, new.ranks)]
    yield from (f"{name}: {before}, now {now}" for name, before, now in pairs if before != now)
    for arm in new.arms:
        twin = next((each for each in old.arms if each.name == arm.name), None)
        if twin is not None and _bindings(twin) != _bindings(arm):
            yield f"{arm.name}: the ranks are bound otherwise than before"


def _bindings(arm: results.Arm) -> list[tuple[str, str, int]]:
    return [(rank.cpus, rank.memory_nodes, rank.threads) for rank in arm.ranks]


def _nodes(result: results.Result) -> str:
    return ", ".join(
        f"{node['host']} ({node['processor']}, Linux {node['kernel']})" for node in result.nodes
    )
