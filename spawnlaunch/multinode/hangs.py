"""Help for a job of several nodes that hangs: each node reports that its ranks are silent.

Silence on one node says nothing, for its ranks may wait for another's. So nothing follows from it
on this node: the hub hears of it, and asks for the stacks when all nodes are silent. With them each
node reports to the hub where its ranks are, and which collectives they have reached; the hub's node
compares the reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from spawnlaunch.base import cpuset, machine
from spawnlaunch.hang import asked, flight, groups, silence, stacks
from spawnlaunch.multinode import messages

LOOK_S = 0.2  # between two looks for the end of the silence
MOST_ROWS, MOST_CHARS = 128, 200  # of a node's report, and of a text in it
MOST_LINES = 16  # of the roll of all nodes


class HangOfAll(silence.HangHelp):
    """Reports that all ranks of this node are silent, and that one is not any more."""

    _is_silent = False
    _stacks_until = 0.0  # earlier output was the stacks; by machine.running_s

    def resumed(self) -> None:
        super().resumed()
        self._is_silent = False

    def _on_roll_called(self) -> None:
        """Note that the output until now was the stacks, and none of the ranks' own."""
        self._stacks_until = machine.running_s() + stacks.QUIET_S
        reached = rows_of(self.roll_call.testimonies, int(machine.time() * 1e9))
        self._supervisor.stacks_shown((where_rows_of(self.roll_call.roll), reached))

    def compared(self, reports: Sequence[messages.Stacked], world_size: int) -> None:
        """Print which rank of all nodes the others wait for, and the roll of all nodes."""
        roll = roll_of([row for each in reports for row in each.where], world_size)
        rows = [row for each in reports for row in each.reached]
        testimonies = testimonies_of(rows, int(machine.time() * 1e9), world_size)
        lines = [f"all nodes: {line}" for line in stacks.hang_lines(testimonies)]
        count, places = sum(len(group.ranks) for group in roll), len(roll)
        lines += [f"this is where {count} of {world_size} ranks of all nodes are:"] * (places > 0)
        lines += [f"  {group.line}" for group in roll[:MOST_LINES]]
        if places > MOST_LINES:
            lines.append(f"  others are in {places - MOST_LINES} more places")
        self._output.say(lines)

    def _listen(self) -> None:
        silent_s = self._silent_s()
        were_stacks = self._is_silent and (
            self.roll_call.is_busy or machine.running_s() - silent_s <= self._stacks_until
        )
        is_silent = were_stacks or silent_s >= self._limit_s
        if is_silent:
            self._loop.alarm(self._listen, LOOK_S)
        else:
            self._schedule_look(silent_s)
        if is_silent != self._is_silent:
            self._is_silent = is_silent
            self._supervisor.silent(is_silent)


def where_rows_of(roll: Iterable[groups.Group]) -> tuple[messages.Where, ...]:
    """The groups of ranks of this node, for another node."""
    rows = (
        messages.Where(
            _cut(each.words_for_one_rank), _cut(each.words_for_several_ranks), _ranges(each.ranks)
        )
        for each in roll
    )
    return tuple(islice(rows, MOST_ROWS))


def rows_of(
    testimonies: Mapping[int, asked.Testimony], now_ns: int
) -> tuple[messages.Reached, ...]:
    """The last collective of each group; ranks at the same line that entered it are together.

    A group whose ranks are all on this node, and agree, is left out: other nodes cannot make it
    hang. But where a rank waits in several groups, which of them it entered last says where it
    waits: so all of its groups stay, and it has rows of its own, as a row has one age.
    """
    recorded = {rank: each.record for rank, each in testimonies.items()}
    members = {name: ranks for each in recorded.values() for name, ranks in each.members.items()}
    lines = {rank: _line(each.samples) for rank, each in testimonies.items()}
    none = flight.Collective("", 0, "", "", "", now_ns)
    last = {
        group: {
            rank: calls[max(calls)] if calls else none._replace(group=group)
            for rank, calls in flight.entered_by(group, recorded).items()
        }
        for group in sorted(members.keys() | flight.names(recorded))
    }
    waits = Counter(
        rank for by_rank in last.values() for rank, call in by_rank.items() if not call.is_over
    )
    rows: list[messages.Reached] = []
    for group, by_rank in last.items():
        ranks: dict[tuple[flight.Collective, str, bool, int | None], list[int]] = {}
        for rank, entered in by_rank.items():
            call = entered._replace(name=_cut(entered.name), what=_cut(entered.what), when=0)
            key = call, *lines[rank], rank if waits[rank] > 1 else None
            ranks.setdefault(key, []).append(rank)
        known = members.get(group)
        has_order = any(waits[rank] > 1 for rank in by_rank)
        if has_order or len(ranks) > 1 or not known or not known <= recorded.keys():
            for (call, place, is_backward, _), alike in ranks.items():
                age_s = max(0, now_ns - min(by_rank[rank].when for rank in alike)) / 1e9
                rows.append(messages.Reached(
                    group, call.number, call.name, call.what, place, age_s, _ranges(alike),
                    call.is_over, is_backward,
                ))  # fmt: skip
    rows.sort(key=lambda row: row.number == 0)  # these are last, if there is room
    return tuple(rows[:MOST_ROWS])


def _line(samples: Iterable[asked.StackSample]) -> tuple[str, bool]:
    """The line at which a rank is most of the time, and whether it is within a backward pass."""
    lines = Counter((_cut(sample.place), sample.is_backward) for sample in samples if sample.place)
    return max(lines, key=lines.__getitem__, default=("", False))


def _cut(text: str) -> str:
    """The text, cut so that a message with many texts is not too long."""
    return text[:MOST_CHARS]


def _ranges(ranks: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The first and the last rank of each range."""
    spans = (span.partition("-") for span in cpuset.format(ranks).split(","))
    return tuple((int(first), int(last or first)) for first, _, last in spans)


def roll_of(rows: Iterable[messages.Where], world_size: int) -> list[groups.Group]:
    """The groups of ranks of all nodes that are in the same place, the smallest first."""
    ranks: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        ranks.setdefault((row.singular, row.plural), []).extend(_ranks(row, world_size))
    roll = (groups.Group(sorted(alike), True, *words) for words, alike in ranks.items() if alike)
    return sorted(roll, key=lambda group: (len(group.ranks), group.ranks[0]))


def testimonies_of(
    rows: Sequence[messages.Reached], now_ns: int, world_size: int
) -> dict[int, asked.Testimony]:
    """The answers of the ranks of all nodes, as far as the rows have them."""
    members: dict[str, set[int]] = {}
    calls: dict[int, list[flight.Collective]] = {}
    samples: dict[int, asked.StackSample] = {}
    for row in rows:
        since = max(0, now_ns - int(row.age_s * 1e9))
        call = flight.Collective(row.group, row.number, row.name, row.shape, "", since, row.is_over)
        for rank in _ranks(row, world_size):
            members.setdefault(row.group, set()).add(rank)
            calls.setdefault(rank, []).extend([call] if row.number else [])
            samples[rank] = asked.StackSample(now_ns - 1, row.place, row.is_backward)
    names = {group: frozenset(ranks) for group, ranks in members.items()}
    return {
        rank: asked.Testimony(
            "", [samples[rank]], flight.Record(tuple(entered), names), now_ns, 0.0
        )
        for rank, entered in calls.items()
    }


def _ranks(row: messages.Where | messages.Reached, world_size: int) -> Iterator[int]:
    """The ranks of a row that are in the world: another launcher may name any."""
    for first, last in row.ranks:
        yield from range(max(first, 0), min(last + 1, world_size))
