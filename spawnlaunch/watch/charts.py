"""Charts as SVG: lines over time and bars of attempts, drawn for print and for small screens.

Ranks differ by colour, by the pattern of the line, and by their number at its end, so that a print
in black and white can be read. Marked ranks have thick lines. page.js zooms a chart by the viewBox
of its elements of class `plot`.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

from spawnlaunch.watch import story

# Okabe and Ito's colours, which most people can tell apart, darkened for thin lines on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#333333", "#7b3294")
DASHES = ("", "6 3", "2 2", "8 3 2 3", "12 4")
WIDTH, HEIGHT = 640, 190
MARGIN_LEFT, MARGIN_RIGHT = 84, 44  # at the left there is room for large letters
MARGIN_TOP, MARGIN_BOTTOM = 10, 24
BASE_Y = HEIGHT - MARGIN_BOTTOM
FEW = 12  # ranks, each with its number at the end of its line
EDGE = 3  # of the plot, for the width of lines
SPAN = WIDTH - MARGIN_LEFT - MARGIN_RIGHT
LEAST = 1e-300  # a smaller value is none
ESCAPES = re.compile("\x1b\\[[0-9;]*[A-Za-z]")  # the escapes by which a terminal sets colours
# Characters that XML may not have, and those that turn the direction of text.
UNPRINTABLE = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


def words(text: object) -> str:
    """The text for HTML and XML; unprintable characters are written as escapes."""
    plain = ESCAPES.sub("", str(text)).replace("\r\n", "\n")
    shown = UNPRINTABLE.sub(lambda match: ascii(match.group())[1:-1], plain)
    return escape(shown)


def lines(
    curves: Mapping[int, story.Curve],
    unit: str,
    until_s: float,
    marked: Collection[int] = (),
    by: float = 1.0,
) -> str:
    """A chart of one figure of all ranks, divided by `by`; "" where no value is known."""
    points = {rank: parts for rank, curve in curves.items() if (parts := _parts(curve, by))}
    if not points:
        return _odd(curves)
    values = [y for parts in points.values() for part in parts for _, y in part]
    if not any(values):
        return '<p class="odd">0 of all ranks, all the time.</p>' + _odd(curves)
    high, low = nice(max(values)), -nice(-min(values)) if min(values) < 0 else 0.0
    scale = _Scale(low, high, until_s)
    drawn = [
        line
        for rank in sorted(points, key=lambda rank: rank in marked)
        for line in _lines(rank, points[rank], scale, rank in marked)
    ]
    ends = {rank: scale.y(parts[-1][-1][1]) for rank, parts in points.items()}
    data = {"low": low, "high": high, "unit": unit, "bottom": BASE_Y, "over": MARGIN_TOP}
    height = BASE_Y - MARGIN_TOP + 2 * EDGE
    pieces = [
        *_axes(scale, unit),
        plot(SPAN, MARGIN_TOP - EDGE, height, drawn, data),
        times(until_s, HEIGHT - 6, SPAN),
        *_labels(ends, marked),
    ]
    label = f"{unit} of {len(points)} ranks over time"
    return svg(WIDTH, HEIGHT, pieces, label, "picture timed") + _odd(curves)


def _odd(curves: Mapping[int, story.Curve]) -> str:
    """A line on ranks with values that are no numbers, as the loss of a diverged training."""
    first = {
        rank: next((x for x, y in curve if y is not None and not math.isfinite(y)), None)
        for rank, curve in curves.items()
    }
    shown = [f"rank {rank} from {x:.0f} s on" for rank, x in first.items() if x is not None]
    more = f", and {len(shown) - FEW} more ranks" if len(shown) > FEW else ""
    return (
        f'<p class="odd">Not a finite number: {", ".join(shown[:FEW])}{more}.</p>' if shown else ""
    )


def _parts(curve: story.Curve, by: float) -> list[list[tuple[float, float]]]:
    """The parts of a curve between the places without a known value."""
    parts: list[list[tuple[float, float]]] = [[]]
    for x, y in curve:
        if y is not None and math.isfinite(y / by):
            parts[-1].append((x, y / by))
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]


class _Scale:
    """The scales of time and value."""

    def __init__(self, low: float, high: float, until_s: float) -> None:
        self.low, self.high = low, high
        self._most = max(-low, high)  # by which all is divided: the sum of both may be no number
        self._x = SPAN / until_s
        self._y = (BASE_Y - MARGIN_TOP) / (high / self._most - low / self._most)
        self._bottom = BASE_Y + self._y * (low / self._most)  # of 0

    def y(self, value: float) -> float:
        return self._bottom - self._y * (value / self._most)

    def place(self, at: tuple[float, float]) -> str:
        return f"{MARGIN_LEFT + self._x * at[0]:.2f},{self.y(at[1]):.2f}"


def plot(
    width: float, top: float, height: float, drawn: Iterable[str], data: Mapping[str, object]
) -> str:
    """An area over time, cut off at its edges when it is zoomed."""
    attributes = "".join(f' data-{name}="{words(value)}"' for name, value in data.items())
    place = f'x="{MARGIN_LEFT}" y="{top:g}" width="{width:g}" height="{height:g}"'
    return (
        f'<svg class="plot" {place} viewBox="{MARGIN_LEFT} {top:g} {width:g} {height:g}" '
        f'preserveAspectRatio="none"{attributes}>{"".join(drawn)}</svg>'
    )


def svg(
    width: float, height: float, drawn: Sequence[str], label: str, kind: str = "picture"
) -> str:
    """An SVG picture, as wide as the page."""
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{words(label)}" xmlns="http://www.w3.org/2000/svg">{"".join(drawn)}</svg>'
    )


def nice(value: float) -> float:
    """The least number from `value` up that is 1, 2 or 5 times a power of ten, or the greatest."""
    if value < LEAST:
        return 1.0
    power = math.floor(math.log10(value)) - 1
    steps = (float(f"{digit}e{power + more}") for more in range(3) for digit in (1, 2, 5))
    return min(next(step for step in steps if step >= value), sys.float_info.max)


def text(x: float, y: float, label: str, anchor: str = "start", extra: str = "") -> str:
    """Text at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{words(label)}</text>'


def colour(rank: int) -> str:
    """The colour of a rank's line."""
    return COLOURS[rank % len(COLOURS)]


def kind(rank: int) -> str:
    """The class of elements in a rank's colour: the style has other colours for dark screens."""
    return f"k{rank % len(COLOURS)}"


def _axes(scale: _Scale, unit: str) -> list[str]:
    drawn = []
    values = [scale.low, 0.0, scale.high] if scale.low < 0 else [0, scale.high / 2, scale.high]
    for value in values:
        y = scale.y(value)
        place = f'x1="{MARGIN_LEFT}" x2="{WIDTH - MARGIN_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
        drawn.append(f'<line class="grid" {place}/>')
        label = f"{value:g}{' ' + unit if value == scale.high else ''}"
        drawn.append(text(MARGIN_LEFT - 6, y + 4, label, "end"))
    return drawn


def times(until_s: float, y: float, width: float) -> str:
    """Marks of a time axis: four parts, in seconds, minutes or hours."""
    unit, length = next(
        ((u, s) for u, s in (("h", 3600), ("min", 60)) if until_s > 3 * s), ("s", 1)
    )
    step = nice(until_s / length / 5) * length
    marks = [i * step for i in range(int(until_s / step) + 1)]
    drawn = [
        text(MARGIN_LEFT + width * at / until_s, y, f"{at / length:g} {unit}", "middle")
        for at in marks
    ]
    return f'<g class="times" data-y="{y:g}">{"".join(drawn)}</g>'


def _lines(
    rank: int, parts: Sequence[Sequence[tuple[float, float]]], scale: _Scale, bold: bool
) -> Iterable[str]:
    dash = DASHES[rank % len(DASHES)]
    style = f' stroke-dasharray="{dash}"' if dash else ""
    strong = " bold" if bold else ""
    for part in parts:
        dot = part if len(part) > 1 else [*part, *part]  # the end of a line is drawn
        places = " ".join(map(scale.place, dot))
        yield (
            f'<polyline class="{kind(rank)}{strong}" stroke="{colour(rank)}"{style} '
            f'data-rank="{rank}" points="{places}"/>'
        )


def _labels(ends: Mapping[int, float], marked: Collection[int]) -> list[str]:
    """The numbers of ranks at the ends of their lines, apart from each other."""
    shown = [rank for rank in ends if len(ends) <= FEW or rank in marked]
    drawn, last = [], float("inf")
    for rank in sorted(shown, key=lambda rank: -ends[rank]):
        y = min(ends[rank] + 4, last - 11)
        last = y
        bold = ' font-weight="bold"' if rank in marked else ""
        name = f"{rank} ◀" if rank in marked else str(rank)
        extra = f' class="{kind(rank)} last"{bold}'
        drawn.append(text(WIDTH - MARGIN_RIGHT + 5, y, name, extra=extra))
    return drawn
