"""Help for a job of several nodes that hangs: each node reports that its ranks are silent.

Silence on one node says nothing, for its ranks may wait for another's. So nothing follows from it
on this node: the hub hears of it, and asks for the stacks when all nodes are silent. With them each
node reports to the hub where its ranks are, and which collectives they have reached; the hub's node
compares the reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from spawnlaunch.base import cpuset, machine
from spawnlaunch.hang import flight, groups, silence, stacks
from spawnlaunch.multinode import launcher, messages
from spawnlaunch.run.supervisor import Supervisor

LOOK_S = 0.2  # between two looks for the end of the silence
MOST_ROWS, MOST_CHARS = 128, 200  # of a node's report, and of a text in it
MOST_LINES = 16  # of the roll of all nodes


class HangOfAll(silence.HangHelp):
    """Reports that all ranks of this node are silent, and that one is not any more."""

    def __init__(self, supervisor: Supervisor) -> None:
        super().__init__(supervisor)
        leader = supervisor.leader
        assert isinstance(leader, launcher.NodeWorkers)
        self._node, leader.compare = leader, self.compare

    _is_quiet = False
    _ours_until = 0.0  # earlier output was the stacks; by machine.running_s

    def resumed(self) -> None:
        super().resumed()
        self._is_quiet = False

    def _stacks_told(self) -> None:
        """Note that the output until now was the stacks, and none of the ranks' own."""
        self._ours_until = machine.running_s() + stacks.QUIET_S
        reached = told_reached(self.stacks.recorded, int(machine.time() * 1e9))
        self._supervisor.rules.stacks_told()
        self._node.show(told_where(self.stacks.roll), reached)

    def compare(self, told: Sequence[messages.Report], world_size: int) -> None:
        """Call the roll of all nodes, and report on which collective their ranks disagree."""
        roll = roll_of([each for one in told for each in one.where], world_size)
        count, places = sum(len(group.ranks) for group in roll), len(roll)
        found = disagreement([each for one in told for each in one.reached], world_size)
        lines = [f"flight recorder, all nodes: {found}"] * bool(found)  # it names the late rank
        lines += [f"this is where {count} of {world_size} ranks of all nodes are:"] * (places > 0)
        lines += [f"  {group.line}" for group in roll[:MOST_LINES]]
        if places > MOST_LINES:
            lines.append(f"  others are in {places - MOST_LINES} more places")
        self._output.say(lines)

    def _listen(self) -> None:
        quiet_s = self._quiet_s()
        were_stacks = self._is_quiet and (
            self.stacks.is_busy or machine.running_s() - quiet_s <= self._ours_until
        )
        is_quiet = were_stacks or quiet_s >= self._limit_s
        left_s = LOOK_S if is_quiet else self._limit_s - quiet_s
        self._loop.alarm(self._listen, left_s, look_s=self._look_s)
        if is_quiet != self._is_quiet:
            self._is_quiet = is_quiet
            self._node.quiet(is_quiet)


def told_where(roll: Iterable[groups.Group]) -> tuple[messages.Where, ...]:
    """The groups of ranks of this node, for another node."""
    rows = (
        messages.Where(_cut(each.one), _cut(each.several), _ranges(each.ranks)) for each in roll
    )
    return tuple(islice(rows, MOST_ROWS))


def told_reached(
    recorded: Mapping[int, flight.Record], now_ns: int
) -> tuple[messages.Reached, ...]:
    """The last collective of each group; ranks that have entered the same one are together.

    A group whose ranks are all on this node, and agree, is left out: other nodes cannot make it
    hang.
    """
    rows: list[messages.Reached] = []
    members: dict[str, frozenset[int]] = {}
    for record in recorded.values():
        members.update(record.members)
    for group in sorted(members.keys() | flight.names(recorded)):
        ranks: dict[flight.Collective, list[int]] = {}
        since: dict[flight.Collective, int] = {}
        none = flight.Collective(group, 0, "", "", "", now_ns)
        for rank, calls in flight.entered_by(group, recorded).items():
            last = calls[max(calls)] if calls else none
            key = last._replace(name=_cut(last.name), what=_cut(last.what), when=0)
            ranks.setdefault(key, []).append(rank)
            since[key] = min(last.when, since.get(key, last.when))
        known = members.get(group)
        if len(ranks) > 1 or not known or not known <= recorded.keys():
            for key, alike in ranks.items():
                age_s = max(0, now_ns - since[key]) / 1e9
                rows.append(messages.Reached(*key[:5], age_s, _ranges(alike), key.is_over))
    rows.sort(key=lambda row: row.number == 0)  # these are told last, if there is room
    return tuple(rows[:MOST_ROWS])


def _cut(text: str) -> str:
    """The text, cut so that a message with many texts is not too long."""
    return text[:MOST_CHARS]


def _ranges(ranks: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The first and the last rank of each range."""
    spans = (span.partition("-") for span in cpuset.format(ranks).split(","))
    return tuple((int(first), int(last or first)) for first, _, last in spans)


def roll_of(told: Iterable[messages.Where], world_size: int) -> list[groups.Group]:
    """The groups of ranks of all nodes that are in the same place, the smallest first."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in told:
        found.setdefault((one.one, one.several), []).extend(_ranks(one, world_size))
    roll = (groups.Group(sorted(ranks), True, *words) for words, ranks in found.items() if ranks)
    return sorted(roll, key=lambda group: (len(group.ranks), group.ranks[0]))


def disagreement(told: Iterable[messages.Reached], world_size: int) -> str | None:
    """The first collective on which ranks disagree, in words; None: there is none."""
    by_group: dict[str, list[messages.Reached]] = {}
    for one in told:
        by_group.setdefault(one.group, []).append(one)
    for rows in sorted(by_group.values(), key=_age_s, reverse=True):
        if found := flight.disagreement(_recorded(rows, world_size)):
            return found
    return None


def _age_s(rows: Sequence[messages.Reached]) -> float:
    """The seconds for which the first rank in the last collective has waited there."""
    last = max(one.number for one in rows)
    return max(one.age_s for one in rows if one.number == last)


def _recorded(rows: Sequence[messages.Reached], world_size: int) -> dict[int, flight.Record]:
    """The rows of one group as records of each of its ranks."""
    calls = {
        rank: (flight.Collective(*one[:5], 0, one.is_over),) * (one.number > 0)
        for one in rows
        for rank in _ranks(one, world_size)
    }
    members = {rows[0].group: frozenset(calls)}
    return {rank: flight.Record(own, members) for rank, own in calls.items()}


def _ranks(row: messages.Where | messages.Reached, world_size: int) -> Iterable[int]:
    """The ranks of a row that are in the world: another launcher may name any."""
    for first, last in row.ranks:
        yield from range(max(first, 0), min(last + 1, world_size))
