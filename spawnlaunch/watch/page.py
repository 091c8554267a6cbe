"""The report as one HTML page: nothing is fetched. page.js zooms its charts and shows values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import join
from typing import Any, NamedTuple

from spawnlaunch.hang import groups
from spawnlaunch.outcome import failures
from spawnlaunch.watch import charts, drawing, rank_table
from spawnlaunch.watch.charts import words
from spawnlaunch.watch.story import Directory, Story

ENDING = 180  # the width of the text on how a rank ended


class Figure(NamedTuple):
    """A figure of all ranks that the page draws over time."""

    name: str
    title: str
    unit: str
    by: float = 1.0  # the divisor of its values
    kinds: tuple[str, ...] = ()  # of notes that mark a rank


CURVES = (
    Figure("work_s", "Its own part of a step: data, computing", "ms", 1e-3, ("slow", "stuck")),
    Figure("late_share", "Share of the time that others wait for it", "%", 1e-2, ("waited for",)),
    Figure("wait_share", "Share of the time that it waits for others", "%", 1e-2),
    Figure("cpu", "CPU use", "cores", kinds=("uneven",)),
    Figure("memory", "Memory", "MiB", 2.0**20, ("grows",)),
    Figure("device_use", "Device use", "%"),
    Figure("device_memory", "Device memory", "GiB", 2.0**30),
    Figure("device_temperature", "Device temperature", "°C"),
    Figure("device_clock", "Device clock", "MHz", kinds=("device",)),
    Figure("reads", "Reads", "MiB/s", 2.0**20),
    Figure("writes", "Writes", "MiB/s", 2.0**20),
    Figure("loss", "Loss of the training loop", ""),
)


def page(directory: Directory) -> str:
    """The whole page, of at least one launch."""
    here, several = Path(__file__).parent, len(directory.launches) > 1
    colours = "".join(f".k{i}{{--k:{colour}}}" for i, colour in enumerate(charts.COLOURS))
    style, script = ((here / f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    parts = [
        *(f'<p class="mark">{words(line)}.</p>' for line in directory.unread),
        *(_launch(story, number, several) for number, story in enumerate(directory.launches)),
    ]
    title = words(_title(directory.launches[0]))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f'<link rel="icon" href="data:,"/><style>{colours}\n{style}</style></head><body>\n'
        + "\n".join(parts)
        + f"\n<script>{script}</script></body></html>\n"
    )  # fmt: skip


def _launch(story: Story, number: int, several: bool) -> str:
    """The part of the page for one launch; of several the newest is open."""
    until_s = max(story.ended - story.began, 1.0)
    sections: Sequence[tuple[str, Callable[[], str]]] = [
        ("", lambda: "\n".join(_head(story))),
        *(
            (f"Where the ranks sit on {start['host']}", partial(_picture, start))
            for start in story.starts
        ),
        ("Attempts", lambda: _attempts(story, until_s)),
        *((figure.title, partial(_curve, story, until_s, figure)) for figure in CURVES),
        ("The first failure", lambda: _failure(story)),
        ("Ranks at their end", lambda: _ranks(story)),
        ("What happened", lambda: _events(story)),
        ("What was derived, and from where", lambda: _sources(story)),
        ("The environment of the workers", lambda: _environment(story)),
    ]
    inside = "\n".join(part for title, content in sections for part in _section(title, content))
    head = f"<h1>{words(_title(story))}</h1>"
    if not several:
        return f'<div data-until="{until_s}">{head}\n{inside}</div>'
    opened = "" if number else ' open=""'
    ends = story.of_kind("end")
    outcome = _status(ends[-1]["status"]) if ends else "no end"
    line = f"{_clock(story.began, day=True)}: {outcome}"
    return (
        f'<details id="launch{number}" data-until="{until_s}"{opened}><summary>{head} '
        f"{words(line)}</summary>\n{inside}</details>"
    )


def _clock(at: float, day: bool = False) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S", time.localtime(at))


def _title(story: Story) -> str:
    world = story.starts[0]["explain"]["world"]
    return f"{world['world_size']} ranks on {', '.join(start['host'] for start in story.starts)}"


def _section(title: str, content: Callable[[], str]) -> list[str]:
    """A title and its content; without content there is no title.

    Where a record of other origin cannot be drawn, the rest of the page is still drawn.
    """
    try:
        drawn = content()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        drawn = f'<p class="mark">Cannot be drawn: {words(repr(error))}</p>'
    return [f"<h2>{words(title)}</h2>" if title else "", drawn] if drawn else []


def _head(story: Story) -> Iterable[str]:
    lasted = f"{story.ended - story.began:.0f} s"
    yield f"<pre>{words(join(map(str, story.starts[0]['command'])))}</pre>"
    yield f"<p>{_clock(story.began, day=True)}, {lasted}</p>"
    yield from (f'<p class="mark">{words(line)}</p>' for line in _ending_lines(story))
    ends = story.of_kind("end")
    if ends and ends[-1]["status"] == 0:
        yield '<p class="well">It ended well, with status 0.</p>'
    for note in story.of_kind("note"):
        line = f"after {note['time'] - story.began:.0f} s: {note['words']}"
        yield f'<p class="mark"><b>{words(note["note"])}</b> {words(line)}</p>'
    yield from _roll(story)


def _roll(story: Story) -> Iterable[str]:
    """The places of the ranks of all nodes in a hang; the cause is likely in the smallest group."""
    calls = story.of_kind("roll")
    last = {rank: group for call in calls for group in call["groups"] for rank in group["ranks"]}
    places: dict[tuple[str, str], list[int]] = {}
    for rank, group in sorted(last.items()):
        places.setdefault((group["one"], group["several"]), []).append(rank)
    by_place = [groups.Group(ranks, True, *where) for where, ranks in places.items()]
    if by_place:
        smallest = sorted(by_place, key=lambda group: len(group.ranks))[:3]
        lines = "; ".join(group.line for group in smallest)
        after_s = calls[-1]["time"] - story.began
        yield f'<p class="mark"><b>roll call</b> {words(f"after {after_s:.0f} s: {lines}")}</p>'


def _ending_lines(story: Story) -> list[str]:
    lines = [
        f"No record of {host} after {_clock(last)} ({last - story.began:.0f} s): it still runs, or "
        "its launcher or its recorder was killed."
        for host, last in story.unended.items()
    ]
    lines += [
        f"{file}: {count} line{'s' * (count > 1)} cannot be read."
        for file, count in story.unreadable.items()
    ]
    ends = story.of_kind("end")
    if not ends or ends[-1]["status"] == 0:
        return lines
    end = ends[-1]
    why = f"It exited with {_status(end['status'])}" + (
        f" ({end['cause']})" if end["cause"] else ""
    )
    return [f"{why}.", *end["words"], *lines]


def _picture(start: Mapping[str, Any]) -> str:
    launch = start["explain"]
    return drawing.picture(launch["node"], launch["workers"], start["host"])


def _attempts(story: Story, until_s: float) -> str:
    """A bar for each rank of each attempt: from its start to its end, with how it ended."""
    height, bars, beside, y = 16, [], [], 4.0
    pids = {
        (attempt["restart"], rank): (attempt["time"], pid)
        for attempt in story.of_kind("attempt")
        for rank, pid in attempt["pids"].items()
    }
    ended = {(end["rank"], end["pid"]): end for end in story.of_kind("ended")}

    def x(at: float) -> float:
        return charts.MARGIN_LEFT + charts.SPAN * (at - story.began) / until_s

    for (restart, rank), (at, pid) in sorted(pids.items()):
        end = ended.get((rank, pid))
        until = end["time"] if end else story.ended
        colour = charts.colour(rank)
        look = f'class="{charts.kind(rank)}" fill="{colour}" stroke="{colour}" fill-opacity="0.55"'
        if end and end["status"] and not end["told"]:
            look = FAILED
        bars.append(
            f'<rect x="{x(at):.2f}" y="{y}" width="{max(x(until) - x(at), 2):.2f}" '
            f'height="{height - 4}" {look}/>'
        )
        bars += _marks(story, rank, at, until, y, x)
        beside.append(charts.text(charts.MARGIN_LEFT - 6, y + 11, f"{restart}: {rank}", "end"))
        on = "light" if look == FAILED else "on"
        beside.append(_beside(x(at), x(until), y + 11, _ending(end), on))
        y += height
    drawn = [
        charts.plot(charts.SPAN, 0, y, bars, {}),
        *beside,
        charts.times(until_s, y + 14, charts.SPAN),
    ]
    legend = (
        '<p class="legend">Attempt: rank. A white line is the first output, a black one the end of '
        "the first collective; red failed first by itself.</p>"
    )
    picture = charts.svg(charts.WIDTH, y + 18, drawn, "attempts over time", "picture timed")
    return picture + legend if pids else ""


FAILED = 'class="bad" fill="#b30000" stroke="#b30000" fill-opacity="0.9"'


def _beside(begin_x: float, end_x: float, y: float, label: str, on: str) -> str:
    """Text after a bar, before it, or on it, as there is room; there it has the class `on`."""
    x, anchor, kind = begin_x + 6, "start", f"last {on}"
    if end_x + ENDING < charts.WIDTH:
        x, kind = end_x + 6, "last"
    elif begin_x - ENDING > charts.MARGIN_LEFT:
        x, anchor, kind = begin_x - 6, "end", "last"
    return charts.text(x, y, label, anchor, f' class="{kind}"')


def _marks(story: Story, rank: int, start: float, end: float, y: float, x: Any) -> Iterable[str]:
    for kind, ink in (("output", "#fff"), ("collective", "#000")):
        for event in story.of_kind(kind):
            at = event.get("at", event["time"])
            if event["rank"] == rank and start <= at <= end:
                yield (
                    f'<line x1="{x(at):.2f}" x2="{x(at):.2f}" y1="{y}" y2="{y + 12}" '
                    f'stroke="{ink}" stroke-width="2"/>'
                )


def _ending(end: Mapping[str, Any] | None) -> str:
    if end is None:
        return "not seen to end"
    killed = f"status {end['status']}: killed by {end['signal']}"
    ending = killed if end["signal"] else _status(end["status"])
    sent = end["told"]
    return f"{ending}, told {sent}" if sent and sent != end["signal"] else ending


def _status(status: int) -> str:
    """`status 1`, `status 137 (SIGKILL)`: a shell reports a death by a signal so."""
    name = failures.signal_name(status - 128)
    return f"status {status}" + f" ({name})" * (status > 128 and name.startswith("SIG"))


def _curve(story: Story, until_s: float, figure: Figure) -> str:
    marked = {note["rank"] for note in story.of_kind("note") if note["note"] in figure.kinds}
    curves = story.curves.get(figure.name, {})
    return charts.lines(curves, figure.unit, until_s, marked, figure.by)


def _failure(story: Story) -> str:
    ends = [end for end in story.of_kind("end") if end["traceback"]]
    return f"<pre>{words(ends[-1]['traceback'])}</pre>" if ends else ""


def _ranks(story: Story) -> str:
    head = ("rank", "pid", "ended", "seconds", "CPU s", "peak memory", "inv. switches", "faults")
    rows = [
        (
            *(end["rank"], end["pid"], _ending(end), f"{end['seconds']:.1f}"),
            ""
            if end["user_seconds"] is None
            else f"{end['user_seconds'] + end['system_seconds']:.1f}",
            rank_table.size(end["peak_bytes"]),
            *(end["involuntary_switches"], end["major_faults"]),
        )
        for end in sorted(story.of_kind("ended"), key=lambda end: (end["time"], end["rank"]))
    ]
    return _table(head, rows, numbers=(0, 1, 3, 4, 5, 6, 7))


def _events(story: Story) -> str:
    rows = []
    for event in story.events:
        if event["kind"] in ("said", "restart", "roll"):
            after = f"{event['time'] - story.began:.1f}\N{NO-BREAK SPACE}s"
            lines = [event["words"]] if isinstance(event["words"], str) else event["words"]
            rows += [(after, line) for line in lines]
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
        shown = values[:1] if len(set(values)) == 1 else [*values[:8], *["..."] * (len(values) > 8)]
        rows.append((name, ", ".join(map(str, shown))))
    return _table(("variable", "value; of each rank where they differ"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[int] = ()) -> str:
    if not rows:
        return ""

    def row(cells: Sequence[Any], tag: str) -> str:
        return f"<tr>{''.join(cell(i, tag, value) for i, value in enumerate(cells))}</tr>"

    def cell(i: int, tag: str, value: Any) -> str:
        inside = words("" if value is None else value)
        kind = ' class="n"' if i in numbers else ""
        return f"<{tag}{kind}>{inside}</{tag}>"

    body = "".join(row(cells, "td") for cells in rows)
    kind = "" if numbers else ' class="words"'
    return f'<div class="wide"><table{kind}>{row(head, "th")}{body}</table></div>'
