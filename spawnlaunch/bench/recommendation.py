"""Advise which flags to use, by the measurements. Pure.

The first workload that counts decides, which is `train` unless another is chosen. An arm is advised
in place of the default if it is better there, by LEAST at least, and worse in no workload that
counts; of several such arms the best one. If there is none, and each comparison of that workload is
decided, the default is kept. Else the answer is not decided, and the default is kept for now.

Controls are never advised, nor arms that have more than flags of the launcher, which --pick could
not print.
"""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from spawnlaunch.base import commands, cpuset
from spawnlaunch.bench import arms, command_line, results, stats

DELTA = f"{100 * stats.DELTA:.0f} %"
LEAST = 0.02  # a gain that is worth other flags than the default
STATUS_UNDECIDED = 3  # of --pick
BUSY = 0.5  # load for each CPU
NICE_MIN = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720)  # --budget that is advised
REASON_CHARS = 200


class Advice(NamedTuple):
    """The advice of a bench."""

    arm: str  # that is best, as far as is known; "" where nothing was compared
    flags: str  # to type for it; "" for the default
    is_sure: bool  # False: it is not decided
    text: str  # the first line of the page


def advise(result: results.Result, chosen: Sequence[str] = ()) -> Advice:
    """Advise flags by these measurements; `chosen` workloads alone count, if there are any."""
    counted = [m for m in result.measured if not chosen or m.workload.name in chosen]
    counted.sort(key=lambda each: each.workload.name != next(iter(chosen), ""))
    if refusal := _refusal(result, counted, chosen):
        is_sure = len(result.arms) == 1 and bool(result.omitted)  # all arms are one here
        return Advice("", "", is_sure, refusal)
    every = [row for m in counted for row in results.headline(results.rows_of(m, result.against))]
    first = [row for row in every if row.workload == counted[0].workload.name]
    worse = {row.arm for row in every if row.comparison.verdict == stats.WORSE}
    is_for_flags = result.against == arms.AUTO
    able = [
        arm.name for arm in result.arms if not (arm.beside or arm.name in (*arms.CONTROLS, *worse))
    ]
    better = [
        row for row in first if row.comparison.verdict == stats.BETTER and row.arm in able
        and row.comparison.ratio >= 1 + LEAST
    ]  # fmt: skip
    undecided = [row for row in first if row.comparison.verdict == stats.UNDECIDED]
    if is_for_flags and better:
        best = max(better, key=lambda row: row.comparison.ratio)
        flag = next(arm.flag for arm in result.arms if arm.name == best.arm)
        return Advice(best.arm, flag, True, f"use {flag}: {difference_from(best)}")
    if undecided:
        rounds = result.about["rounds"]
        spent = f"{rounds} rounds" if rounds else lasting(result.about["budget_s"])
        text = f"not decided in {spent}{busy(result)}: {_more(result, counted[0], undecided)}"
        return Advice(result.against, "", False, text)
    prefix = "keep the default: " if is_for_flags else ""
    shown = first
    if len(first) == 1:  # of many arms the table has the differences in other workloads
        decided = (stats.BETTER, stats.WORSE)
        shown = [row for row in every if row in first or row.comparison.verdict in decided]
    text = prefix + "; ".join(difference_from(row, prefix == "") for row in shown)
    return Advice(result.against, "", True, text)


def difference_from(row: results.Row, is_named: bool = False) -> str:
    """A text as `unpinned is 4 % slower in train (2 to 6 %)`; `is_named` adds the other arm."""
    comparison, other = row.comparison, f" than {row.against}" if is_named else ""
    if comparison.verdict == stats.EQUAL:
        other = f" to {row.against}" if is_named else ""
        return f"{row.arm} is equal{other} within {DELTA} in {row.workload}"
    words, interval = difference(comparison)
    return f"{row.arm} is {words}{other} in {row.workload} ({interval})"


def difference(comparison: stats.Comparison) -> tuple[str, str]:
    """The texts `4 % slower` and `2 to 6 %`, the interval; slower by time, faster by speed.

    >>> difference(stats.Comparison(1 / 1.04, 1 / 1.06, 1 / 1.02, 0.0, 40, stats.WORSE))
    ('4 % slower', '2 to 6 %')
    """
    if comparison.low <= 0:
        return "no interval yet", "too few rounds"
    sign = 1 if comparison.ratio > 1 else -1
    middle = comparison.ratio**sign
    low, high = sorted(100 * (end**sign - 1) for end in (comparison.low, comparison.high))
    digits = 0 if middle > 1.1 or high - low > 4 else 1
    words = f"{100 * (middle - 1):.{digits}f} % {'faster' if sign > 0 else 'slower'}"
    interval = f"{low:.{digits}f} to {high:.{digits}f} %"
    return words.replace(".0 %", " %"), interval.replace(".0 ", " ")


def print_pick(advice: Advice) -> int:
    """Print the flags alone, for --pick; return the exit status."""
    commands.print_error(advice.text, command_line.NAME, "advice")
    status = commands.print_page(advice.flags, command_line.NAME) if advice.flags else 0
    return status or (0 if advice.is_sure else STATUS_UNDECIDED)


def busy(result: results.Result) -> str:
    """The words ` on a busy machine ...` if a node had a high load for its CPUs; else ""."""
    loads = [each["load"] / max(1, len(cpuset.parse(each["allowed"]))) for each in result.nodes]
    return " on a busy machine (an idle one needs less)" if max(loads, default=0) > BUSY else ""


def _more(
    result: results.Result, measured: results.Measured, undecided: Sequence[results.Row]
) -> str:
    """The remedy that would decide a comparison: a larger budget, a quiet machine, or none."""
    name, here = measured.workload.name, measured.rounds
    if any(row.comparison.resolution >= stats.DELTA for row in undecided):
        return f"{name} is measured in steps of {DELTA} or more"
    needed = max(stats.rounds_to_decide(row.comparison) for row in undecided)
    if needed > stats.MOST_ROUNDS:
        return f"the noise in {name} is too large for {DELTA}; measure on a quiet machine"
    if result.about["rounds"]:
        return f"--rounds {needed} would decide {DELTA} in {name}"
    passes = -(-needed // stats.ENOUGH_ROUNDS)
    spent_s = max((each.at_s for m in result.measured for each in m.taken), default=0.0)
    counts = [each.rounds for each in result.measured]
    pass_s = spent_s * stats.ENOUGH_ROUNDS * len(counts) / (sum(counts) or 1)  # of all workloads
    minutes = passes * pass_s / 60
    budget = next((nice for nice in NICE_MIN if nice >= max(minutes, spent_s / 60 * 1.2)), 1440)
    if any(row.comparison.low <= 0 for row in undecided):
        text = f"{here} of {needed} rounds of {name} were done; --budget {budget}m would do all"
    else:
        text = f"--budget {budget}m would decide {DELTA} in {name}"
    return text if here else f"{name} had no whole round; --budget {budget}m or more is needed"


def lasting(seconds: float) -> str:
    """A time as `90 s`, `5 min` or `2 h 10 min`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _refusal(
    result: results.Result, counted: Sequence[results.Measured], chosen: Sequence[str]
) -> str:
    """The reason why there is nothing to compare; "" if there is something."""
    if len(result.arms) < 2:
        omitted = "; ".join(f"{name}: {why}" for name, why in result.omitted.items())
        return f"nothing to compare: there is one arm{f' ({omitted})' if omitted else ''}"
    names = {each.workload.name for each in counted}
    missing = [name for name in chosen if name not in names]
    if missing or not counted:
        return f"nothing to compare: {', '.join(missing) or 'no workload'} was not measured"
    failed = counted[0].failed
    if not results.rows_of(counted[0], result.against) and failed:
        why = textwrap.shorten(next(iter(failed.values())), REASON_CHARS)
        return f"nothing to compare: {next(iter(failed))} failed: {why}"
    if not counted[0].rounds:
        more = 2 * result.about["budget_s"]
        name = counted[0].workload.name
        return f"not decided: {name} had no whole round{busy(result)}; use --budget {more:.0f}s"
    return ""
