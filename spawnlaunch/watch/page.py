"""The report as one HTML page: nothing is fetched, and there is no script."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from shlex import join
from typing import Any

from spawnlaunch.rollcall import groups
from spawnlaunch.watch import charts, drawing, table
from spawnlaunch.watch.story import Curve, Story

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; max-width: 60rem;
       margin: 0 auto; padding: 0 1rem 2rem; overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; } h2 { font-size: 1.1rem; margin: 1.8rem 0 .4rem; }
svg { width: 100%; height: auto; display: block; } svg text { font: 11px sans-serif; fill: #222; }
svg .grid { stroke: #ccc; stroke-width: .7; }
svg text.letter { fill: #fff; font-weight: bold; }
pre { overflow-x: auto; background: #f5f5f5; border: 1px solid #ddd; padding: .6rem;
      font-size: 12.5px; overflow-wrap: normal; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13.5px; }
th, td { text-align: left; padding: .15rem .7rem .15rem 0; border-bottom: 1px solid #ddd;
         vertical-align: top; overflow-wrap: normal; } td.n, th.n { text-align: right; }
.words td:last-child { overflow-wrap: anywhere; min-width: 11rem; }
.mark { border-left: 4px solid #b30000; padding-left: .6rem; margin: .25rem 0; }
.well { border-left: 4px solid #009e73; padding-left: .6rem; }
@media (max-width: 500px) { body { font-size: 14px; padding: 0 .6rem 1rem; }
  svg text { font-size: 15px; } }
"""
# Figures with a curve: title, unit, by what a value is divided, kinds of notes that mark a rank.
CURVES = (
    ("cpu", "CPU use", "cores", 1.0, ("uneven",)),
    ("memory", "Memory", "MiB", 2.0**20, ("grows",)),
    ("device_use", "Device use", "%", 1.0, ()),
    ("device_memory", "Device memory", "GiB", 2.0**30, ()),
    ("device_temperature", "Device temperature", "°C", 1.0, ()),
    ("device_clock", "Device clock", "MHz", 1.0, ("device",)),
    ("reads", "Reads", "MiB/s", 2.0**20, ()),
)


def page(story: Story) -> str:
    """The whole page."""
    until_s = max(story.ended - story.began, 1.0)
    sections = [
        *_head(story),
        *_pictures(story),
        *_section("Attempts", _attempts(story, until_s)),
        *_curves(story, until_s),
        *_section("The first failure", _failure(story)),
        *_section("Ranks at their end", _ranks(story)),
        *_section("What happened", _events(story)),
        *_section("What was derived, and from where", _sources(story)),
        *_section("The environment of the workers", _environment(story)),
    ]
    title = escape(_title(story))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head><body>\n'
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def _title(story: Story) -> str:
    world = story.starts[0]["explain"]["world"]
    return f"{world['world_size']} ranks on {', '.join(start['host'] for start in story.starts)}"


def _section(title: str, content: str) -> list[str]:
    return [f"<h2>{escape(title)}</h2>", content] if content else []


def _head(story: Story) -> Iterable[str]:
    start = story.starts[0]
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(story.began))
    lasted = f"{story.ended - story.began:.0f} s"
    yield f"<h1>{escape(_title(story))}</h1>"
    yield f"<pre>{escape(join(start['command']))}</pre><p>{when}, {lasted}</p>"
    yield from (f'<p class="mark">{escape(line)}</p>' for line in _how_it_ended(story))
    ends = story.of_kind("end")
    if ends and ends[-1]["status"] == 0:
        yield '<p class="well">It ended well, with status 0.</p>'
    for note in story.of_kind("note"):
        words = f"rank {note['rank']} after {note['time'] - story.began:.0f} s: {note['words']}"
        yield f'<p class="mark"><b>{escape(note["note"])}</b> {escape(words)}</p>'
    yield from _roll(story)


def _roll(story: Story) -> Iterable[str]:
    """Where the ranks of all nodes were in a hang; the cause is likely in the smallest group."""
    calls = story.of_kind("roll")
    last = {rank: group for call in calls for group in call["groups"] for rank in group["ranks"]}
    places: dict[tuple[str, str], list[int]] = {}
    for rank, group in sorted(last.items()):
        places.setdefault((group["one"], group["several"]), []).append(rank)
    found = [groups.Group(ranks, True, *where) for where, ranks in places.items()]
    if found:
        said = "; ".join(
            group.line for group in sorted(found, key=lambda each: len(each.ranks))[:3]
        )
        words = f"after {calls[-1]['time'] - story.began:.0f} s: {said}"
        yield f'<p class="mark"><b>roll call</b> {escape(words)}</p>'


def _how_it_ended(story: Story) -> list[str]:
    ends = story.of_kind("end")
    if not ends:
        return ["The record has no end: the launch still runs, or was killed."]
    end = ends[-1]
    if end["status"] == 0:
        return []
    why = f"It exited with status {end['status']}" + (f" ({end['cause']})" if end["cause"] else "")
    return [f"{why}.", *end["words"]]


def _pictures(story: Story) -> Iterable[str]:
    for start in story.starts:
        told = start["explain"]
        yield from _section(
            f"Where the ranks sit on {start['host']}",
            drawing.picture(told["node"], told["workers"], start["host"]),
        )


def _attempts(story: Story, until_s: float) -> str:
    """A bar for each rank of each attempt: from its start to its end, with what it came to."""
    height, drawn, y = 16, [], 4.0
    pids = {
        (attempt["restart"], int(rank)): (attempt["time"], pid)
        for attempt in story.of_kind("attempt")
        for rank, pid in attempt["pids"].items()
    }
    ended = {(one["rank"], one["pid"]): one for one in story.of_kind("ended")}
    span = charts.WIDTH - charts.LEFT - 130

    def x(seconds: float, _: float = 0.0) -> float:
        return charts.LEFT + span * seconds / until_s

    for (restart, rank), (at, pid) in sorted(pids.items()):
        end = ended.get((rank, pid))
        until = end["time"] if end else story.ended
        left, right = x(at - story.began), x(until - story.began)
        failed = bool(end and end["status"] and not end["told"])
        fill = "#b30000" if failed else charts.colour(rank)
        drawn.append(charts.text(charts.LEFT - 6, y + 11, f"{restart}: {rank}", "end"))
        drawn.append(
            f'<rect x="{left:.1f}" y="{y}" width="{max(right - left, 2):.1f}" '
            f'height="{height - 4}" fill="{fill}" stroke="{fill}" '
            f'fill-opacity="{0.9 if failed else 0.55}"/>'
        )
        drawn += _marks(story, rank, at, until, y, x)
        drawn.append(charts.text(right + 6, y + 11, _ending(end)))
        y += height
    y += 18
    drawn += charts.times(until_s, y - 4, x)
    legend = (
        "<p>Attempt: rank. A white line is the first output, a black one the end of the first "
        "collective; red failed first by itself.</p>"
    )
    return charts.svg(charts.WIDTH, y, drawn, "attempts over time") + legend if pids else ""


def _marks(story: Story, rank: int, start: float, end: float, y: float, x: Any) -> Iterable[str]:
    for kind, ink in (("output", "#fff"), ("collective", "#000")):
        for event in story.of_kind(kind):
            at = event.get("at", event["time"])
            if event["rank"] == rank and start <= at <= end:
                place = x(at - story.began)
                yield (
                    f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{y}" y2="{y + 12}" '
                    f'stroke="{ink}" stroke-width="2"/>'
                )


def _ending(end: Mapping[str, Any] | None) -> str:
    if end is None:
        return "not seen to end"
    how = end["signal"] or f"status {end['status']}"
    return f"{how}, told {end['told']}" if end["told"] and end["told"] != end["signal"] else how


def _curves(story: Story, until_s: float) -> Iterable[str]:
    marks: dict[str, set[int]] = {}
    for note in story.of_kind("note"):
        marks.setdefault(note["note"], set()).add(note["rank"])
    own = _own_step(story)
    yield from _section(
        "Its own part of a step, in ms: data and computing, without waiting for others",
        charts.lines(own, "ms", until_s, marks.get("slow", set()) | marks.get("stuck", set())),
    )
    for name, title, unit, by, kinds in CURVES:
        curves = {
            rank: [(at, None if value is None else value / by) for at, value in curve]
            for rank, curve in story.curves.get(name, {}).items()
        }
        marked = set().union(*(marks.get(kind, set()) for kind in kinds))
        yield from _section(title, charts.lines(curves, unit, until_s, marked))
    loss = {rank: curve for rank, curve in story.curves.get("loss", {}).items() if rank == 0}
    yield from _section("Loss of the training loop", charts.lines(loss, "", until_s))


def _own_step(story: Story) -> dict[int, Curve]:
    """The time that each rank itself needs for a step, in milliseconds."""
    own: dict[int, Curve] = {}
    for rank, computing in story.curves.get("compute_s", {}).items():
        data = dict(story.curves.get("data_s", {}).get(rank, ()))
        own[rank] = [
            (at, None if value is None else 1e3 * (value + (data.get(at) or 0.0)))
            for at, value in computing
        ]
    return own


def _failure(story: Story) -> str:
    ends = [end for end in story.of_kind("end") if end["traceback"]]
    return f"<pre>{escape(ends[-1]['traceback'])}</pre>" if ends else ""


def _ranks(story: Story) -> str:
    head = ("rank", "pid", "ended", "seconds", "CPU s", "peak memory", "inv. switches", "faults")
    rows = [
        (
            *(one["rank"], one["pid"], _ending(one), f"{one['seconds']:.1f}"),
            ""
            if one["user_seconds"] is None
            else f"{one['user_seconds'] + one['system_seconds']:.1f}",
            table.size(one["peak_bytes"]),
            *(one["involuntary_switches"], one["major_faults"]),
        )
        for one in sorted(story.of_kind("ended"), key=lambda one: (one["time"], one["rank"]))
    ]
    return _table(head, rows, numbers=(0, 1, 3, 4, 5, 6, 7))


def _events(story: Story) -> str:
    rows = []
    for one in story.events:
        if one["kind"] in ("said", "restart", "roll"):
            words = [one["words"]] if isinstance(one["words"], str) else one["words"]
            rows += [
                (f"{one['time'] - story.began:.1f}\N{NO-BREAK SPACE}s", line) for line in words
            ]
    return _table(("after", ""), rows)


def _sources(story: Story) -> str:
    facts = story.starts[0]["explain"]["sources"]
    return _table(
        ("name", "value", "from"),
        [(name, fact["value"], fact["source"]) for name, fact in facts.items()],
    )


def _environment(story: Story) -> str:
    workers = [worker for start in story.starts for worker in start["explain"]["workers"]]
    names = sorted({name for worker in workers for name in worker["env"]})
    rows = []
    for name in names:
        values = [worker["env"].get(name) for worker in workers]
        same = len(set(values)) == 1
        told = str(values[0]) if same else ", ".join(f"{v}" for v in values[:8])
        rows.append((name, told + (" ..." if not same and len(values) > 8 else "")))
    return _table(("variable", "value; of each rank where they differ"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[int] = ()) -> str:
    if not rows:
        return ""

    def row(cells: Sequence[Any], tag: str) -> str:
        return f"<tr>{''.join(cell(i, tag, value) for i, value in enumerate(cells))}</tr>"

    def cell(i: int, tag: str, value: Any) -> str:
        words = escape("" if value is None else str(value))
        return f"<{tag}{' class=n' if i in numbers else ''}>{words}</{tag}>"

    body = "".join(row(cells, "td") for cells in rows)
    kind = "" if numbers else ' class="words"'
    return f'<div class="wide"><table{kind}>{row(head, "th")}{body}</table></div>'
