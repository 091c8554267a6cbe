"""What to type, by the size of what was measured. Pure.

An arm is advised in place of the default if, over the workloads that count, the weighted mean of
its log ratios to the default is above 0 for sure and at least LEAST (--least), and if it is for
sure in none of them worse by MARGIN or more. `for sure` is by the intervals of the page, which hold
together; that of the mean has the squares of their distances added (Zou and Donner, Statistics in
Medicine 27, 2008). Among
several such arms it is the one with the best mean. An arm that the page shows to be worse by more
than MARGIN in a workload that does not count is not advised either. Controls never are, nor arms
that have more than flags of the launcher, which --pick could not print.

The default is kept for sure if no other arm's mean can be better by LEAST, or if it may not be
advised. Otherwise it is undecided, and the default is kept for want of knowledge.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spawnlaunch import printing
from spawnlaunch.bench import arms, command_line, effort, results, stats, workloads

MARGIN = 0.03
STATUS_UNDECIDED = 3  # of --pick


class Advice(NamedTuple):
    """What to do."""

    arm: str  # that is best, as far as is known; "" where nothing was compared
    flags: str  # to type for it; "" for the default
    is_sure: bool  # False: it is undecided
    weights: dict[str, float]  # of the workloads that count
    text: str


class Candidate(NamedTuple):
    """An arm beside the default: the weighted mean of its ratios, and whether it may be advised."""

    arm: str
    ratio: float
    low: float
    high: float
    harms: str  # the workload that is, or may be, worse by more than MARGIN; "" for none
    is_harm_sure: bool
    least: float = command_line.LEAST  # the gain that is worth it

    @property
    def is_better(self) -> bool:
        """Whether it is for sure, and does no harm."""
        return self.low > 1 and self.ratio >= 1 + self.least and not self.harms

    @property
    def is_out(self) -> bool:
        """Whether it is for sure not what to advise."""
        return self.high < 1 + self.least or self.is_harm_sure


def weights(measured: Sequence[str], chosen: Sequence[str]) -> dict[str, float]:
    """What each workload counts: all of the chosen ones alike, or else WEIGHTS; together 1."""
    counts = {name: 1 if chosen else workloads.WEIGHTS.get(name, 0) for name in chosen or measured}
    if not any(counts.values()):  # a command, or nothing but what has no weight
        counts = dict.fromkeys(counts, 1)
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items() if count}


def candidate(
    arm: str,
    compared: Mapping[str, stats.Comparison],
    weight: Mapping[str, float],
    least: float = command_line.LEAST,
) -> Candidate:
    """An arm, from its comparisons with the default by workload.

    Their intervals allow for the stragglers that fewer than EQUAL_ROUNDS may have missed.
    """
    compared = {name: _allowing(its) for name, its in compared.items()}
    mean = sum(share * math.log(compared[name].ratio) for name, share in weight.items())
    down = up = 0.0
    for name, share in weight.items():
        its = compared[name]
        down += (share * math.log(its.ratio / its.low)) ** 2 if its.low else math.inf
        up += (share * math.log(its.high / its.ratio)) ** 2
    sure = [name for name, its in compared.items() if its.high < 1 - MARGIN] + [
        name
        for name, its in compared.items()
        if name not in weight and its.verdict == stats.WORSE and its.ratio < 1 - MARGIN
    ]
    possible = [name for name in weight if compared[name].low < 1 - MARGIN]
    return Candidate(
        arm,
        math.exp(mean),
        math.exp(mean - math.sqrt(down)),
        math.exp(mean + math.sqrt(up)),
        next(iter([*sure, *possible]), ""),
        bool(sure),
        least,
    )


def _allowing(found: stats.Comparison) -> stats.Comparison:
    wider = 1 + stats.unseen(found.rounds, stats.EQUAL_ROUNDS)
    return found._replace(low=found.low / wider, high=found.high * wider)


def choose(candidates: Sequence[Candidate]) -> Candidate | None:
    """The best of those that are better than the default for sure; None: there is none."""
    better = [each for each in candidates if each.is_better]
    return max(better, key=lambda each: each.ratio, default=None)


def advise(
    result: results.Result, chosen: Sequence[str] = (), least: float = command_line.LEAST
) -> Advice:
    """What these measurements say is to be typed for the chosen workloads, and its worth."""
    compared = results.headline(results.rows(result))
    names = [arm.name for arm in result.arms]
    measured = [each.workload.name for each in result.measured]
    counts = weights(measured, chosen)
    if refusal := _refusal(result, compared, _missing(result, counts)):
        is_sure = len(names) == 1 and bool(result.left_out)  # all arms are one on this machine
        return Advice("", "", is_sure, counts, refusal)
    default = (
        arms.AUTO if arms.AUTO in names else names[0]
    )  # by which auto was left out as the same
    its = {name: _by_workload(compared, name, default) for name in names}
    by_flags = [arm.name for arm in result.arms if not arm.beside and arm.name not in arms.CONTROLS]
    whole = [n for n in by_flags if n != default and its[n].keys() >= counts.keys()]
    candidates = [candidate(name, its[name], counts, least) for name in whole]
    best = choose(candidates)
    if best is not None:
        flags = next(arm.flag for arm in result.arms if arm.name == best.arm)
        said = f"{flags}: {_size(best, counts)} {default}"
        if len(its[best.arm]) > 1:
            said += f"; {_worth(compared, best.arm, default)}"
        return Advice(best.arm, flags, True, counts, said)
    said = _kept(result, compared, default)
    open_ones = [each for each in candidates if not each.is_out]
    why = "; ".join(_open(each) for each in open_ones)
    text = f"undecided, so {said}; {why}; {_what_may_decide(result)}" if why else said
    return Advice(default, "", not open_ones, counts, text)


def _what_may_decide(result: results.Result) -> str:
    """More rounds, or another machine where others had the CPUs of most samples."""
    marks = [each.mark for its in result.measured for each in its.taken if each.counts]
    waited = sum(mark.startswith(effort.WAITED_ON) for mark in marks)
    if 2 * waited <= len(marks):
        return "a larger --budget may decide"
    return f"{waited} of {len(marks)} samples waited for others: measure on an idle machine"


def print_pick(found: Advice) -> int:
    """--pick: the flags alone; the result is the exit status."""
    printing.print_error(found.text, command_line.NAME, "advice")
    status = printing.print_page(found.flags, command_line.NAME) if found.flags else 0
    return status or (0 if found.is_sure else STATUS_UNDECIDED)


def _refusal(
    result: results.Result, compared: Sequence[results.Row], missing: Sequence[str]
) -> str:
    names = [arm.name for arm in result.arms]
    if result.about.get("counts"):
        return "none: numbers of workers were compared, and no bindings"
    if result.about.get("launchers"):
        return "none: launchers were compared, and no bindings"
    if len(names) < 2:
        return "nothing to advise: there is one arm"
    if missing:
        short = any(m.workload.name in missing and not m.rounds for m in result.measured)
        more = "; a larger --budget may do" if short else ""
        return f"no advice: {', '.join(missing)} was not measured{more}"
    if not compared:
        return "no advice: nothing was measured"
    if arms.AUTO not in names and arms.AUTO not in result.left_out:
        return f"no advice: {arms.AUTO}, the default, was not measured; add it to --arms"
    return ""


def _missing(result: results.Result, counts: Mapping[str, float]) -> list[str]:
    """Workloads that count, of which there is no round of the default."""
    default = arms.AUTO if arms.AUTO in (arm.name for arm in result.arms) else result.against
    there = [m.workload.name for m in result.measured if m.rounds and default in m.there]
    return [name for name in counts if name not in there]


def _by_workload(
    compared: Sequence[results.Row], arm: str, default: str
) -> dict[str, stats.Comparison]:
    """The comparisons of an arm with the default, also where they were made the other way."""
    found = {}
    for row in compared:
        its = row.comparison
        if (row.arm, row.against) == (default, arm):
            its = stats.turned(its)
        if {row.arm, row.against} == {arm, default}:
            found[row.workload] = its
    return found


def _kept(result: results.Result, compared: Sequence[results.Row], default: str) -> str:
    """That the flags stay as they are, and what the default is worth."""
    if arms.AUTO in result.left_out:
        return (
            f"leave the flags as they are: {arms.AUTO}, the default: {result.left_out[arms.AUTO]}"
        )
    kept = "leave the flags as they are, --bind auto (the default)"
    other = result.against
    return f"{kept}: {_worth(compared, default, other)}" if other != default else kept


def _size(found: Candidate, counts: Mapping[str, float]) -> str:
    where = weighted(counts) if len(counts) == 1 else f"the mean of {weighted(counts)}"
    return f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f}) times as good in {where} as"


def weighted(counts: Mapping[str, float]) -> str:
    """`train 67%, loader 33%`; the name alone where there is one."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} {share:.0%}" for name, share in counts.items())


def _open(found: Candidate) -> str:
    """Why an arm is undecided."""
    if found.high == math.inf:
        return f"{found.arm} had too few rounds"
    if found.low > 1:
        return f"{found.arm} may be worse in {found.harms} by more than {MARGIN:.0%}"
    return f"{found.arm} is {found.low:.2f} to {found.high:.2f} times as good"


def _worth(compared: Sequence[results.Row], arm: str, other: str) -> str:
    """`compute 1.98 times as good as unpinned; equal within 2% in triad; undecided: loader`."""
    found = _by_workload(compared, arm, other)
    clear = [
        f"{n} {its.ratio:.2f}"
        for n, its in found.items()
        if its.verdict in (stats.BETTER, stats.WORSE)
    ]
    parts = [f"{', '.join(clear)} times as good as {other}"] if clear else []
    equal = [name for name, its in found.items() if its.verdict == stats.EQUAL]
    if equal:
        parts.append(f"equal to {other} within {stats.DELTA:.0%} in {', '.join(equal)}")
    unknown = [name for name, its in found.items() if its.verdict == stats.UNDECIDED]
    if unknown:
        parts.append(f"undecided against {other} in {', '.join(unknown)}")
    return "; ".join(parts)
