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
from itertools import pairwise
from math import comb
from operator import itemgetter

from spawnlaunch.base import records
from spawnlaunch.hang import flight, groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from spawnlaunch.hang import asked

    Span: TypeAlias = tuple[int, int]  # from and to, nanoseconds since 1970

RECENT_S = 30.0  # the time that is looked at
FEW = 60  # collectives, which are looked at also where they are older
# A rank that is late by chance is not to be named. A rank is named only if others wait for it
LEAST = 0.1  # in at least this share of the time,
NEXT_TO_WORST = 0.4  # in at least this part of the share in which they wait for the worst rank,
ABOVE_OTHERS = 3.0  # and in at least so many times the share of any rank that is not named.
# A rank is named only if it is late all of the time: of PARTS equal parts of the time (of fewer,
# where a part would be shorter than a step) at least the share IN_PARTS has enough lateness.
PARTS = 10
IN_PARTS = 0.7
OF_PART = 0.5  # of the share that LEAST and NEXT_TO_WORST ask for: enough lateness in a part
CHANCE = 0.002  # ranks are named only if it is less likely than this that chance made them late
MOST_TIMES = 100  # counted for that
SMALL = 0.3  # of the typical time for which it was waited for: a shorter one is no step's
LEAST_LOOKS = 10
WAITED_FOR = "waited for"  # the kind of a note
HANG_S, HANG_STEPS = 5.0, 3  # a collective is a hang where a rank is missing for so long


class Waits(records.NamedTuple):
    """The shares of the time in which a rank waits for others, and others for it."""

    wait_share: float
    late_share: float


class Culprit(records.NamedTuple):
    """A rank that the others wait for."""

    rank: int
    late_s: float  # in each step; or, where it is a hang, until now
    every_s: float  # a step takes; 0: it is a hang
    before: str  # train.py:88 (all_reduce in backward)
    at: str  # train.py:31, where it spends the time that others do not; "" is not known

    @property
    def is_hang(self) -> bool:
        """Whether the others still wait, for much longer than before."""
        return not self.every_s


class Verdict(records.NamedTuple):
    """The result of comparing the answers of several ranks."""

    shares: Mapping[int, Waits]  # of ranks that are in a collective with others
    culprits: Sequence[Culprit]
    mismatch: flight.Mismatch | None = None  # ranks are in different collectives
    uncertain_s: float = 0.0  # the clocks of the nodes may differ by this


class Note(records.NamedTuple):
    """A remark on a rank that deserves a look."""

    rank: int
    kind: str
    words: str  # a sentence, which names the rank


def notes(verdict: Verdict) -> list[Note]:
    """The notes on ranks in different collectives, and on those that the others wait for.

    Ranks that hang before the same line have one note together, with the number of the first.
    """
    alike: dict[tuple[str, int], list[Culprit]] = {}
    for culprit in verdict.culprits:
        alike.setdefault((culprit.before, -1 if culprit.is_hang else culprit.rank), []).append(
            culprit
        )
    uncertain_s, wrong = verdict.uncertain_s, verdict.mismatch
    clocks = f" (clocks within {1e3 * uncertain_s:.1f} ms)" if uncertain_s else ""
    return [
        *([Note(wrong.rank, "mismatch", wrong.words)] if wrong else ()),
        *(Note(each[0].rank, WAITED_FOR, _sentence(each) + clocks) for each in alike.values()),
    ]


def _sentence(alike: Sequence[Culprit]) -> str:
    """A sentence on culprits that differ in their ranks and places alone.

    `the others wait for rank 1, 20 ms of each 29 ms, before a.py:12 (all_reduce); it is at b.py:3`
    """
    first, late_s = alike[0], max(culprit.late_s for culprit in alike)
    ranks = groups.ranks_of(culprit.rank for culprit in alike)
    of_time = "so far" if first.is_hang else f"of each {_time(first.every_s)}"
    are_at = "it is at" if len(alike) == 1 else "they are at"
    is_same_place = first.at and all(culprit.at == first.at for culprit in alike)
    at = f"; {are_at} {first.at}" if is_same_place else ""
    return f"the others wait for {ranks}, {_time(late_s)} {of_time}, before {first.before}{at}"


def judged(
    testimonies: Mapping[int, asked.Testimony],
    uncertain_s: float = 0.0,
    hang_s: float | None = None,
) -> Verdict:
    """Compare the records of ranks, up to the moment of the first answer.

    A difference of `uncertain_s`, as between the clocks of nodes, does not count as late.
    A rank that is missing for `hang_s` hangs; None: for much longer than any step took.
    """
    now = min((answer.when for answer in testimonies.values()), default=0)
    testimonies = {rank: answer.until(now) for rank, answer in testimonies.items()}
    recorded = {rank: answer.record for rank, answer in testimonies.items()}
    mismatch = flight.mismatch(recorded)
    if mismatch:  # which is seldom
        mismatch = flight.mismatch({rank: _placed(answer) for rank, answer in testimonies.items()})
    meetings = [
        meeting for group in flight.names(recorded) for meeting in _meetings(group, recorded, now)
    ]
    meetings.sort(key=lambda meeting: meeting.begins)
    recent = [meeting for meeting in meetings if meeting.begins >= now - RECENT_S * 1e9]
    meetings = recent if len(recent) >= FEW else meetings[-FEW:]
    if not meetings or _are_past(meetings, now):
        return Verdict({}, (), mismatch)
    since = meetings[0].begins
    ranks = {rank for meeting in meetings for rank in meeting.arrivals}
    waiting = _spans(ranks, (span for meeting in meetings for span in meeting.waits()))
    uncertain_ns = int(uncertain_s * 1e9)
    late = _spans(ranks, (span for meeting in meetings for span in meeting.lates(uncertain_ns)))
    late = {rank: _without(spans, waiting[rank]) for rank, spans in late.items()}
    all_ns = max(now - since, 1)
    shares = {
        rank: Waits(_length(waiting[rank]) / all_ns, _length(late[rank]) / all_ns)
        for rank in waiting
    }
    culprits = _hanging(meetings, testimonies, hang_s) or [
        _culprit(rank, late[rank], all_ns, meetings, testimonies)
        for rank in _named(shares, late, since, now)
    ]
    return Verdict(shares, culprits, mismatch, uncertain_s)


def _placed(answer: asked.Testimony) -> flight.Record:
    """The answer's record, with a line for the last collective that the rank has not left.

    It has one where all samples of the rank's stack since then show the same line.
    """
    calls = answer.record.calls
    waits = (call for call in calls if not call.is_over)
    last = max(waits, key=lambda call: call.when, default=None)
    lines = {
        sample.place
        for sample in answer.samples
        if last and sample.when > last.when and sample.place
    }
    if last is None or last.place or len(lines) != 1:
        return answer.record
    placed = (call._replace(place=min(lines)) if call is last else call for call in calls)
    return answer.record._replace(calls=tuple(placed))


def _meetings(group: str, recorded: Mapping[int, flight.Record], now: int) -> Iterator[_Meeting]:
    """The collectives of a group that all its ranks remember, as far as the ranks have answered."""
    by_rank = flight.entered_by(group, recorded)
    if len(by_rank) < 2:
        return
    remembered = max((min(calls) for calls in by_rank.values() if calls), default=0)
    for number in sorted({n for calls in by_rank.values() for n in calls if n >= remembered}):
        calls = {rank: each[number] for rank, each in by_rank.items() if number in each}
        is_over = all(call.is_over for call in calls.values())
        absent = frozenset() if is_over else by_rank.keys() - calls.keys()
        arrived = {rank: call.when for rank, call in calls.items()} | dict.fromkeys(absent, now)
        yield _Meeting(next(iter(calls.values())), arrived, frozenset(absent))


def _are_past(meetings: Sequence[_Meeting], now: int) -> bool:
    """Whether all ranks have met, and do not meet any more.

    Lateness in the past then says nothing about the ranks' present places.
    """
    patience = max(RECENT_S * 1e9, HANG_STEPS * _longest_step(meetings))
    is_over = not any(meeting.absent for meeting in meetings)
    return is_over and now - max(max(meeting.arrivals.values()) for meeting in meetings) > patience


def _longest_step(meetings: Sequence[_Meeting]) -> int:
    return max((b.begins - a.begins for a, b in pairwise(meetings)), default=0)


def _spans(ranks: Iterable[int], pairs: Iterable[tuple[int, Span]]) -> dict[int, list[Span]]:
    """The spans of each rank; overlapping ones are merged."""
    spans: dict[int, list[Span]] = {rank: [] for rank in ranks}
    for rank, (begin, end) in sorted(pairs):
        merged = spans[rank]
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return spans


class _Meeting(records.NamedTuple):
    """The times at which the ranks of one collective came, or until which they had not come."""

    call: flight.Collective
    arrivals: Mapping[int, int]  # by rank
    absent: frozenset[int]  # of these, the ranks that had not come yet

    @property
    def begins(self) -> int:
        return min(self.arrivals.values())

    def waits(self) -> Iterable[tuple[int, Span]]:
        last = max(self.arrivals.values())
        return (
            (r, (arrived, last)) for r, arrived in self.arrivals.items() if r not in self.absent
        )

    def lates(self, uncertain_ns: int = 0) -> Iterable[tuple[int, Span]]:
        for rank, arrived in self.arrivals.items():
            others = sorted(when for other, when in self.arrivals.items() if other != rank)
            half = others[(len(others) - 1) // 2] + uncertain_ns if others else arrived
            if half < arrived:
                yield rank, (half, arrived)


def _named(
    shares: Mapping[int, Waits], late: Mapping[int, Sequence[Span]], since: int, now: int
) -> list[int]:
    """The ranks that are late by more than chance, all of the time."""
    worst = max(share.late_share for share in shares.values())
    least = max(LEAST, NEXT_TO_WORST * worst)
    ranks = sorted(rank for rank, share in shares.items() if share.late_share >= least)
    others = [share.late_share for rank, share in shares.items() if rank not in ranks]
    named = min(shares[rank].late_share for rank in ranks or shares)
    if not others or max(others) * ABOVE_OTHERS > named:
        return []
    ranks = [rank for rank in ranks if _is_always(late[rank], OF_PART * least, since, now)]
    are_few = 0 < 2 * len(ranks) <= len(shares)  # where most are late, the others are early
    return ranks if are_few and _chance(ranks, late) < CHANCE else []


def _chance(ranks: Sequence[int], late: Mapping[int, Sequence[Span]]) -> float:
    """The probability that some ranks, as many as `ranks`, are late as often by chance.

    By chance, each time of lateness hits each rank with the same probability. A busy machine's few
    long interruptions may well hit the same rank.
    """
    small = min(min(_in_steps(late[rank])) for rank in ranks)
    times = {rank: sum(e - b >= small for b, e in spans) for rank, spans in late.items()}
    named_times, all_times = sum(times[rank] for rank in ranks), sum(times.values())
    if all_times > MOST_TIMES:
        named_times, all_times = named_times * MOST_TIMES // all_times, MOST_TIMES
    size, named = len(late), len(ranks)
    ways = (
        comb(all_times, n) * named**n * (size - named) ** (all_times - n)
        for n in range(named_times, all_times + 1)
    )
    return float(comb(size, named) * sum(ways) / size**all_times)


def _is_always(late: Sequence[Span], least: float, since: int, now: int) -> bool:
    """Whether a rank was late by that much in most parts of the time, rather than once for long."""
    count = max(1, min(PARTS, len(_in_steps(late)) - 1))
    length = (now - since) // count
    parts = [(since + i * length, since + (i + 1) * length) for i in range(count)]
    late_parts = sum(_length(_within(late, part)) >= least * length for part in parts)
    return late_parts >= max(2, IN_PARTS * count)


def _in_steps(late: Sequence[Span]) -> list[int]:
    """The time that a rank is late in each step, without those far below the typical one."""
    lengths = sorted(end - begin for begin, end in late)
    half, so_far = sum(lengths) / 2, 0
    for length in lengths:
        so_far += length
        if so_far >= half:
            return [each for each in lengths if each >= SMALL * length]
    return []


def _hanging(
    meetings: Sequence[_Meeting], testimonies: Mapping[int, asked.Testimony], hang_s: float | None
) -> list[Culprit]:
    """The ranks that are missing for much longer than any step took, and wait for no other rank.

    A broadcast is over for some of its ranks before all have come: these go on to the next
    collective, and the ranks that still wait in the first are missing there. Where all that are
    missing wait for others too, as in two groups for each other, all of them hang.
    """
    missing: dict[int, tuple[_Meeting, Span]] = {}
    for meeting in filter(lambda meeting: meeting.absent, meetings):
        if hang_s is None:  # by how often the group meets
            alike = [each for each in meetings if each.call.group == meeting.call.group]
            patience = max(HANG_S * 1e9, HANG_STEPS * _longest_step(alike))
        else:
            patience = hang_s * 1e9
        for rank, span in meeting.lates():
            if rank in meeting.absent and span[1] - span[0] > patience:
                missing.setdefault(rank, (meeting, span))
    waiting = {
        rank
        for meeting, _ in missing.values()
        for rank in meeting.arrivals
        if rank not in meeting.absent
    }
    culprits = []
    for rank in sorted(missing.keys() - waiting or missing):
        meeting, (begin, end) = missing[rank]
        before, _ = _before(rank, [meeting], testimonies)
        places = Counter(sample.place for sample in testimonies[rank].samples if sample.place)
        at = max(places, key=places.__getitem__, default="")
        culprits.append(Culprit(rank, (end - begin) / 1e9, 0.0, before, at))
    return culprits


def _culprit(
    rank: int, late: Sequence[Span], all_ns: int, meetings: Sequence[_Meeting],
    testimonies: Mapping[int, asked.Testimony],
) -> Culprit:  # fmt: skip
    each = _in_steps(late)
    before, line = _before(rank, meetings, testimonies)
    at = _at(rank, testimonies, _length(late) / all_ns)
    late_s, every_s = (ns / len(each) / 1e9 for ns in (sum(each), all_ns))
    return Culprit(rank, late_s, every_s, before, at or line)


def _before(
    rank: int, meetings: Sequence[_Meeting], testimonies: Mapping[int, asked.Testimony]
) -> tuple[str, str]:
    """The place where the others wait for the rank: in words, and as a line."""
    names: Counter[str] = Counter()
    places: Counter[tuple[str, str]] = Counter()
    for meeting in meetings:
        late = dict(meeting.lates()).get(rank)
        if late:
            name = meeting.call.name
            names[name] += late[1] - late[0]
            places.update(
                (name + " in backward" * sample.is_backward, sample.place)
                for other, (begin, end) in meeting.waits()
                for sample in testimonies[other].samples
                if other != rank and begin < sample.when < end and sample.place
            )
    if not places:
        return names.most_common(1)[0][0], ""
    name, line = places.most_common(1)[0][0]
    return f"{line} ({name})", line


def _at(rank: int, testimonies: Mapping[int, asked.Testimony], late: float) -> str:
    """The line where the rank spends more of its time than the others.

    "" where that explains less than a third of its lateness.
    """
    profile = _profile(testimonies[rank])
    others = [_profile(answer) for other, answer in testimonies.items() if other != rank]
    others = [each for each in others if each]
    if not profile or not others:
        return ""
    half = (len(others) - 1) // 2
    usual = {place: sorted(each.get(place, 0.0) for each in others)[half] for place in profile}
    most = max(profile, key=lambda place: profile[place] - usual[place])
    return most if profile[most] - usual[most] >= late / 3 else ""


def _profile(answer: asked.Testimony) -> dict[str, float]:
    """The share of the looks that found each line of the user's program."""
    if len(answer.samples) < LEAST_LOOKS:
        return {}
    places = Counter(sample.place for sample in answer.samples if sample.place)
    return {place: count / len(answer.samples) for place, count in places.items()}


def _without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """The spans without the time of others: a rank that waits itself is late because of another."""
    remaining: list[Span] = []
    for begin, end in spans:
        for other in _within(others, (begin, end)):
            remaining.append((begin, other[0]))
            begin = other[1]
        remaining.append((begin, end))
    return [span for span in remaining if span[0] < span[1]]


def _within(spans: Sequence[Span], part: Span) -> list[Span]:
    """The parts of ordered spans, of which none overlap, that lie within a time."""
    first = bisect_right(spans, part[0], key=itemgetter(1))
    behind = bisect_left(spans, part[1], key=itemgetter(0))
    return [(max(b, part[0]), min(e, part[1])) for b, e in spans[first:behind]]


def _length(spans: Iterable[Span]) -> int:
    return sum(end - begin for begin, end in spans)


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
