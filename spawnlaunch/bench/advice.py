"""One line: what to type. Pure.

The default stays unless something beats it: an arm replaces it when it is better in more workloads
than it is worse in.
"""

from collections.abc import Sequence

from spawnlaunch.bench.arms import AUTO, CONTROL, UNPINNED
from spawnlaunch.bench.result import Result, Row, headline, rows
from spawnlaunch.bench.stats import FASTER, FEW, MIN_ROUNDS, SAME, SLOWER, inverse


def advice(result: Result) -> str:
    """What these measurements say is to be typed, and what it is worth."""
    compared = headline(rows(result))
    if not compared:
        return "nothing to advise: there is one arm"
    if all(row.comparison.rounds < MIN_ROUNDS for row in compared):
        return f"no advice: {FEW}; type more --rounds"
    names = [arm.name for arm in result.arms if arm.name != CONTROL]
    default = AUTO if AUTO in names else result.against
    lead = {name: _lead(compared, name, default) for name in names if name != default}
    best = max(lead, key=lambda name: lead[name], default=default)
    if lead.get(best, 0) > 0:
        return f"{_flag(result, best)}: {_worth(compared, best, default)}"
    if AUTO in result.left_out:
        return f"leave the flags as they are: {AUTO}, the default: {result.left_out[AUTO]}"
    if default == result.against:
        return f"{_flag(result, default)}: no other arm is better"
    worth = _worth(compared, default, result.against)
    if FASTER in _verdicts(compared, default, result.against):
        return f"{_flag(result, default)}: {worth}"
    return f"leave the flags as they are, {_flag(result, default)}: {worth}"


def _flag(result: Result, name: str) -> str:
    typed = next(arm.flag for arm in result.arms if arm.name == name)
    if name == AUTO:
        return f"{typed} (the default)"
    return typed if name == UNPINNED or typed.endswith(name) else f"{typed} ({name})"


def _lead(compared: Sequence[Row], name: str, default: str) -> int:
    verdicts = _verdicts(compared, name, default)
    return verdicts.count(FASTER) - verdicts.count(SLOWER)


def _verdicts(compared: Sequence[Row], name: str, against: str) -> list[str]:
    return [row.comparison.verdict for row in _of(compared, name, against)]


def _of(compared: Sequence[Row], name: str, against: str) -> list[Row]:
    """The comparisons of two arms, turned round where they were made the other way."""
    turned = [
        row._replace(arm=name, against=against, comparison=inverse(row.comparison))
        for row in compared
        if (row.against, row.arm) == (name, against)
    ]
    return [row for row in compared if (row.arm, row.against) == (name, against)] or turned


def _worth(compared: Sequence[Row], name: str, against: str) -> str:
    """`compute 1.98 times as good as unpinned; no measurable difference in triad, loader`."""
    own = _of(compared, name, against)
    clear = [row for row in own if row.comparison.verdict in (FASTER, SLOWER)]
    parts = []
    if clear:
        each = ", ".join(f"{row.workload} {row.comparison.ratio:.2f}" for row in clear)
        parts.append(f"{each} times as good as {against}")
    same = [row.workload for row in own if row.comparison.verdict == SAME]
    if same:
        parts.append(f"{SAME} to {against} in {', '.join(same)}")
    noisy = [row.workload for row in own if row.comparison.noisy]
    if noisy:
        parts.append(f"too noisy to tell for sure: {', '.join(noisy)}")
    return "; ".join(parts)
