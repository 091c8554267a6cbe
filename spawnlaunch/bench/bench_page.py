"""The page for the user: the answer, one table of all measurements, and notes on it. Pure."""

import textwrap
from collections.abc import Iterator, Sequence

import numpy as np

from spawnlaunch.bench import recommendation, results, stats, stragglers, workloads
from spawnlaunch.bench.arms import CONTROLS

CPUS_CHARS = 60
POSSIBLE = 1.05  # an efficiency of a bundled workload; a command may gain caches too
UNLIKELY = 1.5
UNSCALED = ("jitter", "latency", *workloads.COLLECTIVES)  # more workers do not share their work
VERDICTS = {
    **dict.fromkeys((stats.BETTER, stats.WORSE), ", decided"),
    stats.EQUAL: f", equal within {recommendation.DELTA}",
    stats.UNDECIDED: ", not decided",
}
COLUMNS = ("workload", "arm", "mean", "95 % interval", "difference", "p99", "waited")
WHOLE = textwrap.TextWrapper(  # of the output of a command: lines that can be copied
    98, "", "    ", break_long_words=False, break_on_hyphens=False
)


def page(
    result: results.Result, chosen: Sequence[str] = (), ranks: Sequence[int] = ()
) -> Iterator[str]:
    """Yield the lines of the page, with the steps of jobs of so many ranks."""
    advice = recommendation.advise(result, chosen)
    yield advice.text
    if why := result.about.get("ended_by"):
        yield f"ended early by {why}: these are the samples so far"
    yield ""
    if cells := list(_cells(result)):
        yield from aligned([COLUMNS, *cells])
        yield ""
    yield from _notes(result, ranks)
    yield ""
    yield from header(result)


def header(result: results.Result) -> Iterator[str]:
    """Yield lines on the compared arms, the nodes, and the arms and workloads left out."""
    about = result.about
    hosts = ", ".join(node["host"] for node in result.nodes)
    workers = about.get("workers") or result.ranks
    device = f", computing on {about['device']}" if about["device"] else ""
    yield f"{_counted(workers, 'rank')} on {hosts}{device}"
    for arm in result.arms:
        more = f", {arm.beside}" if arm.beside else ""
        where = arm.flag if about.get("launchers") else _cpus(arm)
        yield f"  {arm.name:12} {where}{more}{' (never advised)' if arm.name in CONTROLS else ''}"
    for node in result.nodes:
        yield f"load of {node['host']} before the first sample: {node['load']:.1f}"
    for name, why in result.omitted.items():
        yield f"  {name:12} left out: {why}"
    for why in dict.fromkeys(result.not_run.values()):
        names = [name for name, its in result.not_run.items() if its == why]
        yield f"{', '.join(names)} left out: {why}"


def _cpus(arm: results.Arm) -> str:
    """The CPUs of the ranks of the first node, as `0-7 | 8-15`."""
    first = [rank for rank in arm.ranks if rank.host == arm.ranks[0].host]
    cpus = [rank.cpus or "any" for rank in first]
    text = (
        f"any CPU for {_counted(len(cpus), 'rank')}" if set(cpus) == {"any"} else " | ".join(cpus)
    )
    counts = sorted({rank.threads for rank in arm.ranks})
    threads = "" if not counts[-1] else f", {_counted(counts[-1], 'thread')} a rank"
    return textwrap.shorten(text, CPUS_CHARS, placeholder=" ...") + threads


def _cells(result: results.Result) -> Iterator[tuple[str, ...]]:
    """Yield a row of the table for each workload, series and arm."""
    for measured in result.measured:
        compared = results.rows_of(measured, result.against)
        for series, values in results.summed_up(measured).items():
            name = f"{measured.workload.name} {series}".rstrip()
            rows = {row.arm: row for row in compared if row.series == series}
            for arm in (each for each in measured.names if values.get(each)):
                mine = ""  # `4 % slower (2 to 6 %), decided`
                if arm in rows:  # a series without a verdict has none
                    compared_with = rows[arm].comparison
                    words, interval = recommendation.difference(compared_with)
                    mine = f"{words} ({interval}){VERDICTS.get(compared_with.verdict, '')}"
                yield (name, arm, *_of_arm(measured, series, arm, values[arm], mine))


def _of_arm(
    measured: results.Measured, series: str, arm: str, values: Sequence[float], mine: str
) -> tuple[str, ...]:
    """The cells of a row from the mean on; for rates that of the costs, which are compared."""
    workload = measured.workload
    costs = np.array(values) ** (-1.0 if workload.higher_is_better else 1.0)
    mean, width = stats.mean_and_width(costs)
    ends = [mean - width, mean + width]
    shown = [_as_unit(workload, each) if 0 < each < np.inf else "?" for each in (mean, *ends)]
    slots = stragglers.slots(measured.taken, arm, series)
    tail = f"{short(1e3 * float(np.percentile(np.concatenate(slots), 99)))} ms" if slots else ""
    efforts = [each for its in measured.efforts(arm) for each in its]
    busy_s = sum((each.ran_s or 0) + (each.waited_s or 0) for each in efforts)
    waited = sum(each.waited_s or 0 for each in efforts) / busy_s if busy_s else 0.0
    low, high = sorted(shown[1:], key=float) if "?" not in shown else ("?", "?")
    unit = "ms/step" if workload.unit == "steps/s" else workload.unit
    return (f"{shown[0]} {unit}", f"{low} to {high}", mine, tail, f"{100 * waited:.0f} %")


def _as_unit(workload: workloads.Workload, cost: float) -> str:
    """A mean cost in the unit that is shown: the time for steps, the rate for other rates."""
    if workload.unit == "steps/s":
        return short(1e3 * cost)
    return short(1 / cost if workload.higher_is_better else cost)


def _notes(result: results.Result, ranks: Sequence[int]) -> Iterator[str]:
    """Yield by workload the rounds, failures and disturbances, and the steps of larger jobs."""
    for measured in result.measured:
        name = measured.workload.name
        marks = [f"{_counted(n, 'sample')} {cause}" for cause, n in measured.disturbed.items()]
        samples = f", {'; '.join(marks)} (of {len(measured.taken)})" if marks else ""
        if not measured.taken:
            continue
        is_whole = result.about["rounds"] or measured.rounds >= stats.ENOUGH_ROUNDS
        few = "" if is_whole else f" of {stats.ENOUGH_ROUNDS} at the end of --budget"
        yield f"{name}: {_counted(measured.rounds, 'round')}{few}{samples}"
        for arm, why in measured.failed.items():
            yield from WHOLE.wrap(f"{arm} failed: {why}")
        for arm in measured.names:
            moved = [e.strayed for its in measured.efforts(arm) for e in its if e.strayed]
            if moved:
                yield f"  {arm}: a library moved a thread to CPUs {moved[0]}, out of its binding"
        if ranks:
            yield from stragglers.lines(measured, ranks, result.against)
        yield from scaling(measured, result)
    if empty := [each.workload.name for each in result.measured if not each.taken]:
        yield f"without a sample: {', '.join(empty)}"
    if any(row.comparison.low > 0 for row in results.rows(result)):
        yield f"compared with {result.against}; at most 1 workload in 20 has a wrong difference"


def scaling(measured: results.Measured, result: results.Result) -> Iterator[str]:
    """Yield the speed and efficiency of each number of workers, where numbers were compared.

    Bundled workloads give each rank the same work, and measure how fast a rank does it; so the
    ratio to the fewest workers is the efficiency, and the speed of the job is that by the number of
    workers. A command's wall time, or its number, is of the whole job: its ratio is the speed.
    """
    counts = result.about.get("counts")
    if not counts or measured.workload.name in UNSCALED:
        return
    nodes = len(result.nodes)
    for row in results.headline(results.rows_of(measured, result.against)):
        if row.against == str(counts[0]):
            workers, fewest = int(row.arm) * nodes, int(row.against) * nodes
            comparison = row.comparison
            per_rank = measured.workload.name != workloads.COMMAND
            speed, efficiency = speeds(comparison.ratio, workers / fewest, per_rank=per_rank)
            ends = (comparison.low, comparison.high)
            low, high = (speeds(end, workers / fewest, per_rank=per_rank)[1] for end in ends)
            interval = f" ({low:.0%} to {high:.0%})" if comparison.low else ""
            if (comparison.low and low > POSSIBLE and per_rank) or efficiency > UNLIKELY:
                yield (
                    f"  error: {workers} workers seem to have {efficiency:.0%} of the efficiency "
                    f"of {fewest}, more than is possible: others had the CPUs; measure again on a "
                    "machine that is not busy"
                )
                continue
            yield (
                f"  {workers} workers: {speed:.2f} times the speed of {fewest}, "
                f"efficiency {efficiency:.0%}{interval}"
            )


def speeds(ratio: float, times: float, *, per_rank: bool) -> tuple[float, float]:
    """The speed and efficiency of so many times the workers.

    >>> speeds(0.9, 4, per_rank=True), speeds(3.6, 4, per_rank=False)
    ((3.6, 0.9), (3.6, 0.9))
    """
    return (ratio * times, ratio) if per_rank else (ratio, ratio / times)


def aligned(cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table, with aligned columns."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        yield "  ".join(c.ljust(width) for c, width in zip(row, widths, strict=True)).rstrip()


def _counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def short(value: float) -> str:
    """A number with three significant digits: 0.0123, 1.23, 123, 12345."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"
