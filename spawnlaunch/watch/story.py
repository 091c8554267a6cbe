"""The launches in a directory of records, with their samples as curves.

A file holds one launch of one node. The files of several nodes are one launch where their workers
meet: in the same run, at the same MASTER_ADDR and MASTER_PORT, at the same time.

An unreadable line, which a killed machine may have left half written, is left out and counted.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from spawnlaunch.hang import asked, culprits
from spawnlaunch.watch import notes, recorder

POINTS = 60_000  # of a chart, at most
MOST, LEAST = 3000, 300  # of each curve in it, which has some 500 pixels
CLOCKS_S = 0.01  # by which the clocks of nodes may differ: NTP keeps them closer
APART_S = 30.0  # between launchers of a launch (their workers need not meet), or clocks
FIGURES = {
    *("cpu", "memory", "device_use", "device_memory", "device_temperature", "device_clock"),
    *("reads", "writes", "work_s", "loss", "wait_share", "late_share"),
}  # that are drawn
Curve = Sequence[tuple[float, float | None]]  # seconds since the start, and the value


class Story(NamedTuple):
    """A launch, of all nodes that have a file."""

    starts: Sequence[Mapping[str, Any]]  # of the nodes, in their order
    events: Sequence[Mapping[str, Any]]  # all but samples, in the order of their times
    curves: Mapping[str, Mapping[int, Curve]]  # by figure and rank
    began: float  # seconds since 1970
    ended: float
    files: Sequence[str]  # their names
    unreadable: Mapping[str, int]  # by file, the number of lines that could not be read
    unended: Mapping[str, float]  # by host, the last line of a record without an end

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """The events of a kind."""
        return [event for event in self.events if event["kind"] == kind]


class Directory(NamedTuple):
    """The launches in a directory."""

    launches: Sequence[Story]  # the newest first
    unread: Sequence[str]  # files in which no launch begins, and why


def read(directory: str) -> Directory:
    """All records of a directory."""
    nodes: list[_Node] = []
    unread = []
    for file in sorted(Path(directory).glob("*.jsonl")):
        try:
            records, problem = _nodes(file), "no launch begins in it"
        except OSError as error:  # another user's, perhaps
            records, problem = [], f"{error.strerror}"
        nodes += records
        if not records:
            unread.append(f"{file.name}: {problem}")
    launches: list[list[_Node]] = []
    for node in sorted(nodes, key=lambda each: each.began):
        others = next((each for each in reversed(launches) if node.is_of(each)), None)
        if others:
            others.append(node)
        else:
            launches.append([node])
    return Directory([_story(each) for each in reversed(launches)], unread)


class _Node:
    """The record of one launch on one node.

    It takes no line that a page could not be drawn with: such a line raises some exception.
    """

    def __init__(self, start: dict[str, Any], path: Path) -> None:
        self.path, self.file = str(path), path.name
        self.events = [{**_sound(start), "host": str(start["host"])}]
        # By figure and rank: times, and values.
        self.series: dict[str, dict[int, tuple[list[float], list[Any]]]] = {}
        self.began = self.ended = float(start["time"])
        self.unreadable = 0
        _first_rank(start), int(start["explain"]["world"]["world_size"]), self._meetings()

    def add(self, line: dict[str, Any]) -> None:
        line = _sound(line)
        self.began, self.ended = min(self.began, line["time"]), max(self.ended, line["time"])
        if line["kind"] in ("sample", "wait_shares"):
            self._add_sample(line)
            return
        if line["kind"] == "attempt":  # no line leads from earlier values to those of new processes
            for by_rank in self.series.values():
                for rank in line["pids"].keys() & by_rank.keys():
                    by_rank[rank][0].append(line["time"])
                    by_rank[rank][1].append(None)
        self.events.append(line)

    def _add_sample(self, line: Mapping[str, Any]) -> None:
        figures = {name: line[name] for name in FIGURES & line.keys()}
        if computing := line.get("compute_s"):
            loading = line.get("data_s", [0.0] * len(computing))
            figures["work_s"] = [
                computing_s and _number(computing_s) + _number(data or 0.0)
                for computing_s, data in zip(computing, loading, strict=False)
            ]
        for name, values in figures.items():
            ranks = line["ranks"][:1] if name == "loss" else line["ranks"]  # that of all
            by_rank = self.series.setdefault(name, {})
            for rank, value in zip(ranks, values, strict=False):
                times, known = by_rank.setdefault(rank, ([], []))
                times.append(line["time"])
                known.append(value)

    def is_of(self, others: Sequence[_Node]) -> bool:
        """Whether this node belongs to the launch of the others."""
        mine = self._meetings()
        return (
            any(mine & each._meetings() for each in others)
            and not any(self._seats() & each._seats() for each in others)
            and any(
                self.began <= each.ended + APART_S and each.began <= self.ended + APART_S
                for each in others
            )
        )

    def _worlds(self) -> Iterable[tuple[int, Mapping[str, Any]]]:
        """The places where this node's workers met, by attempt, from their variables."""
        world = self.events[0]["explain"]["world"]
        known = {
            "NODE_RANK": world.get("node_rank"),
            "MASTER_ADDR": world.get("master_addr"),
            "MASTER_PORT": world.get("master_port"),
        }
        attempts = [event for event in self.events if event["kind"] == "attempt"]
        yield from ((attempt["restart"], {**known, **attempt["world"]}) for attempt in attempts)
        if not attempts:
            yield 0, known

    def _meetings(self) -> set[tuple[str, ...]]:
        world = self.events[0]["explain"]["world"]
        if world.get("nnodes") == 1:
            return set()
        places = {(f"{w['MASTER_ADDR']}", f"{w['MASTER_PORT']}") for _, w in self._worlds()}
        return {
            (f"{world.get('run_id')}", *each) for each in places if each[1] not in ("0", "None")
        }

    def _seats(self) -> set[tuple[int, str]]:
        """The node's number in each attempt.

        No two nodes of a launch have the same number in the same attempt.
        """
        return {(restart, f"{world['NODE_RANK']}") for restart, world in self._worlds()}


def _sound(line: dict[str, Any]) -> dict[str, Any]:
    """The line, after checking the numbers that others compute with and compare."""
    time.localtime(line["time"])
    for name, each in line.items():
        if name == "ranks":
            line[name] = [*map(int, each)]
        elif name in ("rank", "restart") or (name == "status" and line["kind"] == "end"):
            line[name] = int(each)
        elif name == "pids":
            line[name] = {int(rank): pid for rank, pid in each.items()}
        elif name == "world":
            line[name] = dict(each)
    return line


def _nodes(file: Path) -> list[_Node]:
    """The launches of a file: one, unless files were put together."""
    nodes: list[_Node] = []
    with file.open("rb", buffering=1 << 20) as opened:
        for text in opened:
            try:
                line = json.loads(text.decode(errors="replace"))
                if line["kind"] == "start":
                    nodes.append(_Node(line, file))
                elif nodes:
                    nodes[-1].add(line)
            except Exception:  # any error of a line that no recorder wrote, or not whole
                if nodes:
                    nodes[-1].unreadable += 1
    return nodes


def _story(nodes: Sequence[_Node]) -> Story:
    began, ended = min(node.began for node in nodes), max(node.ended for node in nodes)
    curves = _curves(nodes, began)
    events = [event for node in nodes for event in node.events]
    if len(nodes) > 1:
        events += [*_slow_among_nodes(curves, events, ended), *_waited_for_among_nodes(nodes)]
    events.sort(key=lambda event: event["time"])
    return Story(
        starts=sorted((_as_begun(node.events) for node in nodes), key=_first_rank),
        events=events,
        curves=curves,
        began=began,
        ended=ended,
        files=[node.file for node in nodes],
        unreadable={node.file: node.unreadable for node in nodes if node.unreadable},
        unended={
            node.events[0]["host"]: node.ended
            for node in nodes
            if not any(event["kind"] == "end" for event in node.events)
        },
    )


def _slow_among_nodes(
    curves: Mapping[str, Mapping[int, Curve]], events: Sequence[Mapping[str, Any]], ended: float
) -> Iterator[dict[str, Any]]:
    """Notes on ranks that are slow at the end among those of all nodes.

    The recorder of a node compares its own ranks, so it cannot see a node that is slow as a whole.
    """
    noted = {event.get("rank") for event in events if event.get("note") == "slow"}
    work_s = {}
    for rank, curve in curves.get("work_s", {}).items():
        known = [value for _, value in curve[-len(curve) // 3 :] if value and math.isfinite(value)]
        if known:
            work_s[rank] = median(known)
    for note in notes.slow(work_s):
        if note.rank not in noted:
            words = f"{note.words} of all nodes"
            yield {"kind": "note", "time": ended, "rank": note.rank, "note": "slow", "words": words}


def _waited_for_among_nodes(nodes: Sequence[_Node]) -> Iterator[dict[str, Any]]:
    """Notes on ranks that those of all nodes wait for, as far as the last answers show."""
    known = [each for each in map(_answers, nodes) if each]
    moments = sorted(set.intersection(*map(set, known))) if len(known) > 1 else []
    answers = [dict(chain(*(each[moment].items() for each in known))) for moment in moments]
    verdicts = [culprits.judged(each, CLOCKS_S) for each in answers]
    if not verdicts:
        return
    before, last = {culprit.rank for culprit in verdicts[0].culprits}, verdicts[-1]
    named = [each for each in last.culprits if each.is_hang or each.rank in before]
    when = min(answer.when for answer in answers[-1].values()) / 1e9
    for note in culprits.notes(last._replace(culprits=named, uncertain_s=0.0)):
        words = f"{note.words} (of the ranks of all nodes; clocks within {1e3 * CLOCKS_S:.0f} ms)"
        yield {"kind": "note", "time": when, "rank": note.rank, "note": note.kind, "words": words}


def _answers(node: _Node) -> dict[int, dict[int, asked.Testimony]]:
    """The last answers of a node's ranks, by moment; none where there is no such file."""
    try:
        text = Path(recorder.answers_file(node.path)).read_text("utf-8")
        return {
            int(moment): {int(rank): asked.from_json(answer) for rank, answer in ranks.items()}
            for moment, ranks in json.loads(text).items()
            if ranks
        }
    except Exception:  # any error of a file that no recorder wrote
        return {}


def _as_begun(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The start of a node with the ranks that its workers had, where they can be read."""
    try:
        return _with_ranks(lines)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        return lines[0]


def _with_ranks(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The start of a node, with its workers as those of the last attempt were.

    Launchers of several nodes do not know their ranks before they have met.
    """
    start = lines[0]
    last = next((line for line in reversed(lines) if line["kind"] == "attempt"), None)
    if last is None or not last["pids"]:
        return start
    launch = start["explain"]
    ranks = [worker["rank"] for worker in launch["workers"]]
    first, world = min(last["pids"]), last.get("world", {})
    of_role = int(world.get("ROLE_RANK", first))
    workers = []
    for worker in launch["workers"]:
        i = int(worker["rank"] - min(ranks))
        variables = {**world, "RANK": str(first + i), "ROLE_RANK": str(of_role + i)}
        workers.append({**worker, "rank": first + i, "env": {**worker["env"], **variables}})
    size = int(world.get("WORLD_SIZE", launch["world"]["world_size"]))
    placed = {**launch["world"], "world_size": size}
    return {**start, "explain": {**launch, "world": placed, "workers": workers}}


def _first_rank(start: Mapping[str, Any]) -> int:
    return int(start["explain"]["workers"][0]["rank"])


def _curves(nodes: Sequence[_Node], began: float) -> dict[str, dict[int, Curve]]:
    series: dict[str, dict[int, tuple[list[float], list[Any]]]] = {}
    for name, rank, (times, values) in (
        (name, rank, each)
        for node in nodes
        for name, by_rank in node.series.items()
        for rank, each in by_rank.items()
    ):
        known = series.setdefault(name, {}).setdefault(rank, ([], []))
        known[0].extend(at - began for at in times)
        known[1].extend(values)
    return {
        name: {
            rank: thinned(times, values, max(LEAST, min(MOST, POINTS // len(by_rank))))
            for rank, (times, values) in sorted(by_rank.items())
        }
        for name, by_rank in series.items()
    }


def thinned(times: Sequence[float], values: Sequence[Any], most: int) -> Curve:
    """At most `most` points, with the least and the greatest of those that are left out.

    A value that is not known is None; one that is no finite number is NaN. Of these the first one
    of each part stays too.
    """
    values = [None if value is None else _number(value) for value in values]
    if len(values) <= most:
        return list(zip(times, values, strict=True))
    size = -(-3 * len(values) // most)
    points: list[tuple[float, float | None]] = []
    for begin in range(0, len(values), size):
        group = range(begin, min(begin + size, len(values)))
        known = [i for i in group if values[i] == values[i] and values[i] is not None]
        chosen = {choose(known, key=values.__getitem__) for choose in (min, max) if known}
        if len(known) < len(group):
            chosen.add(min({*group}.difference(known)))
        points += [(times[i], values[i]) for i in sorted(chosen)]
    return points


def _number(value: Any) -> float:
    """The value as a finite number; NaN where it is none."""
    try:
        number = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan
