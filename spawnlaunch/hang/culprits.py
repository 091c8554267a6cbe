"""Which ranks the others wait for, for how long, before which line, and where these ranks are.

A collective begins when the last of its ranks has come. So the others wait for a rank from the
moment at which half of them are there to that at which the rank comes itself; and a rank waits from
when it comes to when the last rank does. Both are shares of the time that is looked at: collectives
that run side by side count once. A rank that waits for another one meanwhile is late because of
that one.

While the others wait for a rank, it is not at the line that takes it longer: it has already passed
that line, by as much as it is late. That line is where it spends more of its time than the others
do: the looks at its main thread are compared with those at theirs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import chain, pairwise
from math import comb
from operator import itemgetter

from spawnlaunch.base import records
from spawnlaunch.hang import flight, groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias

    from spawnlaunch.hang import asked, frames

    Span: TypeAlias = tuple[int, int]  # from and to, nanoseconds since 1970

LATELY_S = 30.0  # the time that is looked at
FEW = 60  # collectives, which are looked at also where they are older
# Ranks late by chance are not named. A named rank is waited for in this share of the time, ...
LEAST = 0.1
NEXT_TO_WORST = 0.4  # ... of what the worst is waited for, ...
ABOVE_OTHERS = 3.0  # ... and so many times what the ranks that are not named are; ...
PARTS = 10  # ... and of so many parts of the time, each of a step at least, ...
IN_PARTS = 0.7  # ... so many have ...
OF_PART = 0.5  # ... that much of that share; ...
CHANCE = 0.002  # ... and it is less likely than this that all are late by the same rules.
MOST_TIMES = 100  # counted for that
SMALL = 0.3  # of the typical time for which it was waited for: a shorter one is no step's
LEAST_LOOKS = 10
HANG_S, HANG_STEPS = 5.0, 3  # a collective is a hang where a rank is missing for so long


class Waits(records.NamedTuple):
    """The shares of the time in which a rank waits for others, and others for it."""

    waits: float
    waited_for: float


class Culprit(records.NamedTuple):
    """A rank that the others wait for."""

    rank: int
    late_s: float  # in each step; or, where it is a hang, until now
    every_s: float  # a step takes; 0: it is a hang
    before: str  # train.py:88 (all_reduce in backward)
    at: str  # where it spends the time that others do not: load (train.py:31); "" is not known

    @property
    def is_hang(self) -> bool:
        """Whether the others still wait, for much longer than before."""
        return not self.every_s


def waited_for(found: Iterable[Culprit]) -> list[tuple[int, str]]:
    """A sentence on each rank that the others wait for, and the number of that rank.

    Ranks that hang before the same line have one sentence together, and the number of the first.
    """
    alike: dict[tuple[str, int], list[Culprit]] = {}
    for one in found:
        alike.setdefault((one.before, -1 if one.is_hang else one.rank), []).append(one)
    return [(each[0].rank, _sentence(each)) for each in alike.values()]


def _sentence(alike: Sequence[Culprit]) -> str:
    """A sentence on culprits that differ in their ranks and places alone.

    `the others wait for rank 1, 20 ms of each 29 ms, before a.py:12 (all_reduce); it is at b.py:3`
    """
    first, late_s = alike[0], max(one.late_s for one in alike)
    who = f"the others wait for {groups.ranks_of(one.rank for one in alike)}, {_time(late_s)}"
    of_time = "so far" if first.is_hang else f"of each {_time(first.every_s)}"
    are_at = "it is at" if len(alike) == 1 else "they are at"
    is_one_place = first.at and all(one.at == first.at for one in alike)
    at = f"; {are_at} {first.at}" if is_one_place else ""
    return f"{who} {of_time}, before {first.before}{at}"


class Verdict(records.NamedTuple):
    """The result of comparing the answers of several ranks."""

    shares: Mapping[int, Waits]  # of ranks that are in a collective with others
    culprits: Sequence[Culprit]
    mismatch: flight.Mismatch | None = None  # ranks are in different collectives
    uncertain_s: float = 0.0  # the clocks of the nodes may differ by this


def judged(
    answers: Mapping[int, asked.Testimony], uncertain_s: float = 0.0, hang_s: float | None = None
) -> Verdict:
    """Compare the records of ranks; their clocks may differ by `uncertain_s`.

    A difference of the clocks does not count as late.

    A rank that is missing for `hang_s` hangs; None: for much longer than any step took.
    """
    told = {rank: answer.record for rank, answer in answers.items()}
    mismatch = flight.mismatch(told)
    if mismatch:  # which is seldom
        mismatch = flight.mismatch({rank: _placed(answer) for rank, answer in answers.items()})
    now = max((answer.when for answer in answers.values()), default=0)
    meetings = _lately(told, answers, now)
    if not meetings or _are_past(meetings, now):
        return Verdict({}, (), mismatch)
    since = meetings[0].begins
    waiting, late = _spans(meetings, int(uncertain_s * 1e9))
    all_ns = max(now - since, 1)
    shares = {
        rank: Waits(_length(waiting[rank]) / all_ns, _length(late[rank]) / all_ns)
        for rank in waiting
    }
    named = _named(shares, late, since, now)
    found = [_culprit(rank, late[rank], all_ns, meetings, answers) for rank in named]
    hanging = _hanging(meetings, answers, hang_s)
    return Verdict(shares, hanging or found, mismatch, uncertain_s)


def _placed(answer: asked.Testimony) -> flight.Record:
    """The answer's record, with the last collective's line where all looks since show one line."""
    calls = answer.record.calls
    last = max(calls, key=lambda call: call.when, default=None)
    places = {
        groups.place_of(own)
        for look in answer.looks
        if last and look.when > last.when and (own := groups.own(look.stack))
    }
    if last is None or last.place or len(places) != 1:
        return answer.record
    placed = (one._replace(place=min(places)) if one is last else one for one in calls)
    return answer.record._replace(calls=tuple(placed))


def _lately(
    told: Mapping[int, flight.Record], answers: Mapping[int, asked.Testimony], now: int
) -> list[_Meeting]:
    """The collectives that are looked at, in their order."""
    meetings = [one for group in flight.names(told) for one in _meetings(group, told, answers)]
    meetings.sort(key=lambda one: one.begins)
    lately = [one for one in meetings if one.begins >= now - LATELY_S * 1e9]
    return lately if len(lately) >= FEW else meetings[-FEW:]


def _are_past(meetings: Sequence[_Meeting], now: int) -> bool:
    """Whether all ranks have met, and do not meet any more.

    Lateness in the past then says nothing about the ranks' present places.
    """
    begins = [one.begins for one in meetings]
    patience = max(
        LATELY_S * 1e9, HANG_STEPS * max((b - a for a, b in pairwise(begins)), default=0)
    )
    is_over = not any(one.absent for one in meetings)
    return is_over and now - max(max(one.came.values()) for one in meetings) > patience


def _spans(
    meetings: Sequence[_Meeting], uncertain_ns: int
) -> tuple[dict[int, list[Span]], dict[int, list[Span]]]:
    """The times in which each rank waits, and those in which others wait for it."""
    ranks = {rank for one in meetings for rank in one.came}
    waiting = _spans_of(ranks, chain.from_iterable(one.waits() for one in meetings))
    late = _spans_of(ranks, chain.from_iterable(one.lates(uncertain_ns) for one in meetings))
    return waiting, {rank: _without(spans, waiting[rank]) for rank, spans in late.items()}


def _spans_of(ranks: Iterable[int], found: Iterable[tuple[int, Span]]) -> dict[int, list[Span]]:
    """The spans of each rank; overlapping ones are merged."""
    spans: dict[int, list[Span]] = {rank: [] for rank in ranks}
    for rank, span in found:
        spans[rank].append(span)
    return {rank: _merged(each) for rank, each in spans.items()}


class _Meeting(records.NamedTuple):
    """The times at which the ranks of one collective came, or until which they had not come."""

    call: flight.Collective
    came: Mapping[int, int]  # by rank
    absent: frozenset[int]  # of these, the ranks that had not come yet

    @property
    def begins(self) -> int:
        return min(self.came.values())

    def waits(self) -> Iterable[tuple[int, Span]]:
        last = max(self.came.values())
        return ((r, (came, last)) for r, came in self.came.items() if r not in self.absent)

    def waiting(self, answers: Mapping[int, asked.Testimony], rank: int) -> Iterable[frames.Stack]:
        """The stacks that other ranks had while they waited for this rank."""
        for other, (begin, end) in self.waits():
            if other != rank:
                looks = answers[other].looks
                yield from (look.stack for look in looks if begin < look.when < end)

    def lates(self, uncertain_ns: int = 0) -> Iterable[tuple[int, Span]]:
        for rank, came in self.came.items():
            others = sorted(when for other, when in self.came.items() if other != rank)
            half = others[(len(others) - 1) // 2] + uncertain_ns if others else came
            if half < came:
                yield rank, (half, came)


def _meetings(
    group: str, told: Mapping[int, flight.Record], answers: Mapping[int, asked.Testimony]
) -> Iterable[_Meeting]:
    """The collectives of a group that all its ranks remember, as far as the ranks have answered."""
    by_rank = flight.entered_by(group, told)
    for number in flight.numbers(by_rank):
        calls = {rank: each[number] for rank, each in by_rank.items() if number in each}
        absent = flight.missing(calls, by_rank)
        until = {rank: answers[rank].when for rank in absent}
        if len(by_rank) > 1:
            came = {**{rank: call.when for rank, call in calls.items()}, **until}
            yield _Meeting(next(iter(calls.values())), came, absent)


def _named(
    shares: Mapping[int, Waits], late: Mapping[int, Sequence[Span]], since: int, now: int
) -> list[int]:
    """The ranks that are late by more than chance, all of the time."""
    worst = max(share.waited_for for share in shares.values())
    least = max(LEAST, NEXT_TO_WORST * worst)
    found = sorted(rank for rank, share in shares.items() if share.waited_for >= least)
    others = [share.waited_for for rank, share in shares.items() if rank not in found]
    named = min(shares[rank].waited_for for rank in found or shares)
    if not others or max(others) * ABOVE_OTHERS > named:
        return []
    found = [rank for rank in found if _is_always(late[rank], OF_PART * least, since, now)]
    are_few = 0 < 2 * len(found) <= len(shares)  # where most are late, the others are early
    return found if are_few and _chance(found, late) < CHANCE else []


def _chance(found: Sequence[int], late: Mapping[int, Sequence[Span]]) -> float:
    """The probability that some ranks, as many as `found`, are late as often by chance.

    By chance, each time of lateness hits each rank with the same probability. A busy machine's few
    long interruptions may well hit the same rank.
    """
    small = min(min(_in_steps(late[rank])) for rank in found)
    times = {rank: sum(e - b >= small for b, e in spans) for rank, spans in late.items()}
    theirs, all_times = sum(times[rank] for rank in found), sum(times.values())
    if all_times > MOST_TIMES:
        theirs, all_times = theirs * MOST_TIMES // all_times, MOST_TIMES
    size, named = len(late), len(found)
    ways = (
        comb(all_times, n) * named**n * (size - named) ** (all_times - n)
        for n in range(theirs, all_times + 1)
    )
    return float(comb(size, named) * sum(ways) / size**all_times)


def _is_always(late: Sequence[Span], least: float, since: int, now: int) -> bool:
    """Whether a rank was late by that much in most parts of the time, rather than once for long."""
    count = max(1, min(PARTS, len(_in_steps(late)) - 1))
    length = (now - since) // count
    parts = [(since + i * length, since + (i + 1) * length) for i in range(count)]
    found = sum(_length(_within(late, part)) >= least * length for part in parts)
    return found >= max(2, IN_PARTS * count)


def _in_steps(late: Sequence[Span]) -> list[int]:
    """The time that a rank is late in each step, without those far below the typical one."""
    lengths = sorted(end - begin for begin, end in late)
    half, so_far = sum(lengths) / 2, 0
    for length in lengths:
        so_far += length
        if so_far >= half:
            return [one for one in lengths if one >= SMALL * length]
    return []


def _hanging(
    meetings: Sequence[_Meeting], answers: Mapping[int, asked.Testimony], hang_s: float | None
) -> list[Culprit]:
    """The ranks that are missing for much longer than any step took, and wait for no other rank.

    A broadcast is over for some of its ranks before all have come: these go on to the next
    collective, and the ranks that still wait in the first are missing there.
    """
    missing: dict[int, tuple[_Meeting, Span]] = {}
    for one in filter(lambda one: one.absent, meetings):
        patience = _patience(one, meetings) if hang_s is None else hang_s * 1e9
        for rank, span in one.lates():
            if rank in one.absent and span[1] - span[0] > patience:
                missing.setdefault(rank, (one, span))
    waiting = {rank for one, _ in missing.values() for rank in one.came if rank not in one.absent}
    found = []
    for rank in sorted(missing.keys() - waiting):
        one, (begin, end) = missing[rank]
        before, _ = _before(rank, [one], answers)
        at = max(_profile(answers[rank]).items(), key=lambda p: p[1], default=("", 0.0))[0]
        found.append(Culprit(rank, (end - begin) / 1e9, 0.0, before, at))
    return found


def _patience(one: _Meeting, meetings: Sequence[_Meeting]) -> float:
    """The nanoseconds for which a rank may be missing, by how often its group meets."""
    begins = [each.begins for each in meetings if each.call.group == one.call.group]
    return max(HANG_S * 1e9, HANG_STEPS * max((b - a for a, b in pairwise(begins)), default=0))


def _culprit(
    rank: int, late: Sequence[Span], all_ns: int, meetings: Sequence[_Meeting],
    answers: Mapping[int, asked.Testimony],
) -> Culprit:  # fmt: skip
    each = _in_steps(late)
    before, line = _before(rank, meetings, answers)
    at = _at(rank, answers, _length(late) / all_ns)
    late_s, every_s = (ns / len(each) / 1e9 for ns in (sum(each), all_ns))
    return Culprit(rank, late_s, every_s, before, at or line)


def _before(
    rank: int, meetings: Sequence[_Meeting], answers: Mapping[int, asked.Testimony]
) -> tuple[str, str]:
    """The place where the others wait for the rank: in words, and as a line."""
    names: Counter[str] = Counter()
    places: Counter[tuple[str, str]] = Counter()
    for one in meetings:
        late = dict(one.lates()).get(rank)
        if late:
            names[one.call.name] += late[1] - late[0]
            waiting = one.waiting(answers, rank)
            places.update(filter(None, (_call(one.call.name, stack) for stack in waiting)))
    if not places:
        return names.most_common(1)[0][0], ""
    name, line = places.most_common(1)[0][0]
    return f"{line} ({name})", line


def _call(name: str, stack: frames.Stack) -> tuple[str, str] | None:
    """The collective in words, and the line of the user's own code."""
    own = groups.own(stack)
    is_backward = any(frame.function == "_engine_run_backward" for frame in stack)
    return (name + " in backward" * is_backward, groups.place_of(own)) if own else None


def _at(rank: int, answers: Mapping[int, asked.Testimony], late: float) -> str:
    """The line where the rank spends more of its time than the others.

    "" where that explains less than a third of its lateness.
    """
    own = _profile(answers[rank])
    others = [_profile(answer) for other, answer in answers.items() if other != rank]
    others = [each for each in others if each]
    if not own or not others:
        return ""
    usual = {place: _median(each.get(place, 0.0) for each in others) for place in own}
    most = max(own, key=lambda place: own[place] - usual[place])
    return most if own[most] - usual[most] >= late / 3 else ""


def _profile(answer: asked.Testimony) -> dict[str, float]:
    """The share of the looks that found each line of the user's program."""
    if len(answer.looks) < LEAST_LOOKS:
        return {}
    places = Counter(
        groups.place_of(own) for look in answer.looks if (own := groups.own(look.stack))
    )
    return {place: count / len(answer.looks) for place, count in places.items()}


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The spans, merged where they overlap."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """The spans without the time of others: a rank that waits itself is late because of another."""
    found: list[Span] = []
    for begin, end in spans:
        for other in _within(others, (begin, end)):
            found.append((begin, other[0]))
            begin = other[1]
        found.append((begin, end))
    return [span for span in found if span[0] < span[1]]


def _within(spans: Sequence[Span], part: Span) -> list[Span]:
    """The parts of ordered spans, of which none overlap, that lie within a time."""
    first = bisect_right(spans, part[0], key=itemgetter(1))
    behind = bisect_left(spans, part[1], key=itemgetter(0))
    return [(max(b, part[0]), min(e, part[1])) for b, e in spans[first:behind]]


def _median(numbers: Iterable[float]) -> float:
    """The lower of the two medians."""
    ordered = sorted(numbers)
    return ordered[(len(ordered) - 1) // 2]


def _length(spans: Iterable[Span]) -> int:
    return sum(end - begin for begin, end in spans)


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
