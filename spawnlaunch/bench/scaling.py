"""The gain of more workers: speed and efficiency against the fewest. Pure.

Bundled workloads give each rank the same work, and measure how fast a rank does it; so the ratio to
the fewest workers is the efficiency, and the speed of the job is that by the number of workers. A
command's wall time, or its number, is of the whole job: its ratio is the speed.
"""

from collections.abc import Iterator, Sequence

from spawnlaunch.bench import results, workloads

POSSIBLE = 1.05  # of a bundled workload; a command may gain caches too
UNLIKELY = 1.5
UNSCALED = ("jitter", "latency", *workloads.COLLECTIVES)  # more workers do not share their work


def lines(
    measured: results.Measured, rows: Sequence[results.Row], result: results.Result
) -> Iterator[str]:
    """Yield a line for each number of workers, where numbers were compared."""
    counts = result.about.get("counts")
    if not counts or measured.workload.name in UNSCALED:
        return
    nodes = len(result.nodes)
    for row in results.headline(rows):
        if row.against == str(counts[0]):
            workers, fewest = int(row.arm) * nodes, int(row.against) * nodes
            found = row.comparison
            per_rank = measured.workload.name != workloads.COMMAND
            speed, efficiency = speeds(found.ratio, workers / fewest, per_rank=per_rank)
            ends = (found.low, found.high)
            low, high = (speeds(end, workers / fewest, per_rank=per_rank)[1] for end in ends)
            said = f" ({low:.0%} to {high:.0%})" if found.low else ""
            if (found.low and low > POSSIBLE and per_rank) or efficiency > UNLIKELY:
                yield (
                    f"  error: {workers} workers seem to have {efficiency:.0%} of the efficiency "
                    f"of {fewest}, more than is possible: others had the CPUs; measure again on a "
                    "machine that is not busy"
                )
                continue
            yield (
                f"  {workers} workers: {speed:.2f} times the speed of {fewest}, "
                f"efficiency {efficiency:.0%}{said}"
            )


def speeds(ratio: float, times: float, *, per_rank: bool) -> tuple[float, float]:
    """The speed and efficiency of so many times the workers.

    >>> speeds(0.9, 4, per_rank=True), speeds(3.6, 4, per_rank=False)
    ((3.6, 0.9), (3.6, 0.9))
    """
    return (ratio * times, ratio) if per_rank else (ratio, ratio / times)
