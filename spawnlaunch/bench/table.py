"""What a person reads: the arms, a table for each workload, and the advice. Pure."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from spawnlaunch import cpuset
from spawnlaunch.bench import advice, command_line, results, scaling, stats, stragglers, workloads
from spawnlaunch.bench.arms import CONTROLS
from spawnlaunch.bench.why import cause, costs

CPUS_CHARS = 60
PAGE_CHARS = 98
BUSY = 0.5  # load for each CPU
COLUMNS = ("arm", "threads", "median", "least to most", "against", "ratio", "interval", "verdict")
COSTS = ("arm", "rank", "waited", "local memory", "migrations/s", "switched away/s", "MHz")
WHOLE = textwrap.TextWrapper(  # of what a command said: lines that can be typed
    PAGE_CHARS, "  ", "    ", break_long_words=False, break_on_hyphens=False
)
TOGETHER = "each verdict follows from its interval; at most 1 bench in 20 has any wrong verdict"


def header(result: results.Result) -> Iterator[str]:
    """What is compared, where, and what is left out."""
    about = result.about
    hosts = ", ".join(node["host"] for node in result.nodes)
    ranks = about.get("workers") or result.ranks
    device = f", computing on {about['device']}" if about["device"] else ""
    rounds = (
        f"{about['rounds']} rounds" if about["rounds"] else f"up to {lasting(about['budget_s'])}"
    )
    yield f"{_counted(ranks, 'rank')} on {hosts}{device}; {rounds}, seed {about['seed']}"
    for arm in result.arms:
        more = f", {arm.beside}" if arm.beside else ""
        where = arm.flag if about.get("launchers") else _cpus(arm)
        yield f"  {arm.name:12} {where}{more}{' (never advised)' if arm.name in CONTROLS else ''}"
    yield from _busy(result)
    for node in result.nodes[:1]:
        yield from (f"{device}: next to {nic}" for device, nic in node["nics"].items() if nic)
    if about.get("matrix"):
        yield "copies by device and NUMA node"
        yield from aligned(list(matrix_lines(about["matrix"])))
    elif "matrix" in about:
        yield f"--matrix left out: {workloads.NO_DEVICE}"
    for resumed in about.get("resumed", ()):
        yield f"gone on with on {', '.join(resumed['hosts'])}, {resumed['date']}"
    for name, why in result.left_out.items():
        yield f"  {name:12} left out: {why}"
    for name, why in result.not_run.items():
        yield f"{name} left out: {why}"
    yield from about.get("planned", ())


def _busy(result: results.Result) -> Iterator[str]:
    """The node with most to do for each of its CPUs, if that is much, and how many others."""
    loads = [each["load"] / max(1, len(cpuset.parse(each["allowed"]))) for each in result.nodes]
    busy = [load for load in loads if load > BUSY]
    if busy:
        most = result.nodes[loads.index(max(busy))]
        more = f", and {len(busy) - 1} of the others too" if len(busy) > 1 else ""
        yield f"{most['host']} is busy: load {most['load']:.1f} before the first sample{more}"


def _cpus(arm: results.Arm) -> str:
    """The CPUs of the ranks of the first node, as `0-7 | 8-15`."""
    first = [rank for rank in arm.ranks if rank.host == arm.ranks[0].host]
    cpus = [rank.cpus or "any" for rank in first]
    ranks = _counted(len(cpus), "rank")
    text = f"any CPU for {ranks}" if set(cpus) == {"any"} else " | ".join(cpus)
    return textwrap.shorten(text, CPUS_CHARS, placeholder=" ...")


def matrix_lines(found: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[tuple[str, ...]]:
    """A row for each device, a column for each NUMA node: `25.1 / 24.8`, to and from it."""
    homes = list(dict.fromkeys(home for rates in found.values() for home in rates))
    yield ("GB/s to / from", *(f"numa {home}" for home in homes))
    for name, rates in found.items():
        cells = (f"{rates[h][0]:.1f} / {rates[h][1]:.1f}" if h in rates else "" for h in homes)
        yield (name, *cells)


def title(workload: workloads.Workload) -> str:
    """The name, and what the numbers are."""
    better = "more" if workload.higher_is_better else "less"
    is_whole = workload.name == workloads.COMMAND and workload.together
    whose = "" if is_whole else " of the slowest rank"
    return f"{workload.name} ({workload.unit}{whose}, {better} is better)"


def block(
    measured: results.Measured,
    result: results.Result,
    *,
    ranks: Sequence[int] = (),
    with_costs: bool = False,
) -> Iterator[str]:
    """The table of one workload, with steps of jobs of so many ranks.

    `with_costs`: what its samples cost each rank, too.
    """
    workload = measured.workload
    yield ""
    yield title(workload)
    yield f"  {workload.about}"
    compared = results.rows_of(measured, result.against)
    for series, cells in tables(measured, result, compared):
        if series:
            yield f"  {series}"
        yield from aligned(cells)
    for name, why in measured.failed.items():
        yield from WHOLE.wrap(f"{name} failed: {why}")
    cut = "" if measured.is_ended else ", and then it was interrupted"
    yield f"  {_counted(measured.rounds, 'round')}{cut}"
    yield from stragglers.lines(measured, ranks, result.against)
    yield from _disturbances(measured)
    yield from _explained(measured, compared, result)
    yield from scaling.lines(measured, compared, result)
    if with_costs:
        yield from aligned([COSTS, *_costs(measured)])
    if enough := results.enough_rounds(measured, result.against):
        yield f"  {enough} are needed to tell; type --rounds {enough}, or a larger --budget"


def tables(
    measured: results.Measured, result: results.Result, compared: Sequence[results.Row]
) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """The name and the cells of each series of a workload; the first row names the columns."""
    for series, arms in results.summed_up(measured).items():
        mine = [row for row in compared if row.series == series]
        there = [arm for arm in result.arms if arm.name in arms]
        lines = (_lines(arm, arms[arm.name], mine) for arm in there)
        yield series, [COLUMNS, *(line for each in lines for line in each)]


def verdict(found: stats.Comparison) -> str:
    """The verdict as a cell of a table; of an undecided one, which difference would be seen."""
    if found.verdict == stats.EQUAL:
        return f"equal within {stats.DELTA:.0%}"
    if found.verdict != stats.UNDECIDED:
        return found.verdict
    if not found.low:
        return "undecided: too few to tell"
    if found.resolution >= stats.DELTA:
        steps = "one value" if found.resolution > 1 else f"steps of {found.resolution:.0%}"
        return f"undecided: measured in {steps}"
    if found.low > 1 or found.high < 1 or found.seen < stats.DELTA:
        return "undecided: so few rounds may have missed stragglers"
    return f"undecided: {found.seen:.1%} would be seen"


def interval(found: stats.Comparison) -> str:
    """The interval as a cell of a table."""
    return f"{found.low:.3f} to {found.high:.3f}" if found.low else "any"


def _explained(
    measured: results.Measured, compared: Sequence[results.Row], result: results.Result
) -> Iterator[str]:
    """Threads outside their bindings, and the cause that each difference fits."""
    for arm in result.arms:
        strayed = [e.strayed for its in measured.efforts(arm.name) for e in its if e.strayed]
        if strayed:
            yield f"  {arm.name}: a library moved a thread to CPUs {strayed[0]}, out of its binding"
    for row in results.headline(compared):
        if row.comparison.verdict in (stats.BETTER, stats.WORSE):
            yield f"  why {row.arm} is {row.comparison.verdict} than {row.against}: " + cause(
                row, measured, result
            )


def _disturbances(measured: results.Measured) -> Iterator[str]:
    """How many samples the machine disturbed."""
    for what, n in measured.disturbed(counts=False).items():
        yield f"  {_counted(n, 'sample')} {what}, and {'was' if n == 1 else 'were'} taken again"
    for what, n in measured.disturbed(counts=True).items():
        yield f"  {_counted(n, 'sample')} {what}, and count: this machine is busy"


def _costs(measured: results.Measured) -> Iterator[tuple[str, ...]]:
    """A line for each arm and rank."""
    for arm in measured.there:
        for rank, efforts in enumerate(measured.efforts(arm)):
            its = costs(efforts)
            local = "" if its.remote is None else f"{1 - its.remote:.0%}"
            rates = (its.migrations, its.involuntary, its.mhz)
            cells = ("" if each is None else f"{each:.1f}" for each in rates)
            yield (arm, str(rank), f"{its.waited:.0%}", local, *cells)


def _counted(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"


def threads(arm: results.Arm) -> str:
    """Of each rank, `4`, or `2 to 4`; "" where a launcher decides it."""
    counts = sorted({rank.threads for rank in arm.ranks})
    return " to ".join(str(each or "") for each in dict.fromkeys((counts[0], counts[-1])))


def _lines(
    arm: results.Arm, values: Sequence[float], rows: Sequence[results.Row]
) -> Iterator[tuple[str, ...]]:
    """An arm's values, and a line for each comparison; the first is on the same line."""
    if not values:
        return
    spread = f"{short(min(values))} to {short(max(values))}"
    its = [(row.against, row.comparison) for row in rows if row.arm == arm.name]
    compared = [(name, f"{c.ratio:.3f}", interval(c), verdict(c)) for name, c in its] or [("",) * 4]
    yield (arm.name, threads(arm), short(stats.middle(values)), spread, *compared[0])
    yield from (("", "", "", "", *more) for more in compared[1:])


def aligned(cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns, indented."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {line}".rstrip()


def short(value: float) -> str:
    """Three digits that count: 0.0123, 1.23, 123, 12345."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def lasting(seconds: float) -> str:
    """`90 s`, `5 min` or `2 h 10 min`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def end(
    result: results.Result, chosen: Sequence[str], least: float = command_line.LEAST
) -> Iterator[str]:
    """What the page says, and what is advised by it."""
    found = advice.advise(result, chosen, least)
    yield ""
    if found.arm:
        yield TOGETHER
        yield f"advice for {advice.weighted(found.weights)}:"
        yield textwrap.fill(found.text, PAGE_CHARS, initial_indent="  ", subsequent_indent="  ")
    else:
        yield f"advice: {found.text}"


def page(
    result: results.Result,
    chosen: Sequence[str] = (),
    *,
    least: float = command_line.LEAST,
    ranks: Sequence[int] = (),
    with_costs: bool = False,
) -> Iterator[str]:
    """All of it."""
    yield from header(result)
    for measured in result.measured:
        yield from block(measured, result, ranks=ranks, with_costs=with_costs)
    yield from end(result, chosen, least)
