"""Charts as SVG: lines over time and bars of attempts, drawn for print and for small screens.

Ranks differ by colour, by the pattern of the line, and by their number at its end, so that a print
in black and white can be read. Marked ranks have thick lines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape

from spawnlaunch.watch import story

# Okabe and Ito's colours, which most people can tell apart, darkened for thin lines on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#333333", "#7b3294")
DASHES = ("", "6 3", "2 2", "8 3 2 3", "12 4")
WIDTH, HEIGHT = 640, 190
LEFT, RIGHT, TOP, BOTTOM = 84, 44, 10, 24  # at the left there is room for large letters
FEW = 12  # ranks, each with its number at the end of its line


def lines(
    curves: Mapping[int, story.Curve], unit: str, until_s: float, marked: Collection[int] = ()
) -> str:
    """A chart of a figure of all ranks; "" where nothing is known of it."""
    points = {rank: parts for rank, curve in curves.items() if (parts := _parts(curve))}
    if not points:
        return ""
    top = nice(max(y for parts in points.values() for part in parts for _, y in part))
    drawn = [*_axes(top, unit, until_s)]
    for rank in sorted(points, key=lambda rank: rank in marked):
        for part in points[rank]:
            drawn.append(_line(rank, part, top, until_s, rank in marked))
    drawn += _labels({rank: parts[-1][-1] for rank, parts in points.items()}, top, marked)
    return svg(WIDTH, HEIGHT, drawn, f"{unit} of {len(points)} ranks over time")


def _parts(curve: story.Curve) -> list[list[tuple[float, float]]]:
    """The parts of a curve between places where nothing is known."""
    parts: list[list[tuple[float, float]]] = [[]]
    for x, y in curve:
        if y is not None:
            parts[-1].append((x, float(y)))
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]


def svg(width: float, height: float, drawn: Sequence[str], words: str) -> str:
    """The picture, as wide as the page is."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(words)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(drawn)}</svg>'
    )


def nice(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    step = 1.0
    while step < value:
        step *= 10
    while step / 10 >= value:
        step /= 10
    return next(step * share for share in (0.2, 0.5, 1) if step * share >= value)


def text(x: float, y: float, words: str, anchor: str = "start", extra: str = "") -> str:
    """Words at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def colour(rank: int) -> str:
    """The colour of a rank's line."""
    return COLOURS[rank % len(COLOURS)]


def _x(seconds: float, until_s: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * seconds / max(until_s, 1e-9)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _axes(top: float, unit: str, until_s: float) -> list[str]:
    drawn = []
    for share in (0, 0.5, 1):
        y = _y(top * share, top)
        drawn.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        drawn.append(
            text(LEFT - 6, y + 4, f"{top * share:g}{' ' + unit if share == 1 else ''}", "end")
        )
    return [*drawn, *times(until_s, HEIGHT - 6, _x)]


def times(until_s: float, y: float, x: Callable[[float, float], float]) -> list[str]:
    """Marks of a time axis: four parts, in seconds, minutes or hours."""
    unit, length = next(
        ((u, s) for u, s in (("h", 3600), ("min", 60)) if until_s > 3 * s), ("s", 1)
    )
    step = nice(until_s / length / 5) * length
    marks = [i * step for i in range(int(until_s / step) + 1)]
    return [text(x(at, until_s), y, f"{at / length:g} {unit}", "middle") for at in marks]


def _line(
    rank: int, curve: Sequence[tuple[float, float]], top: float, until_s: float, bold: bool
) -> str:
    places = " ".join(f"{_x(x, until_s):.1f},{_y(y, top):.1f}" for x, y in curve)
    dash = DASHES[rank % len(DASHES)]
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline fill="none" stroke="{colour(rank)}" stroke-width="{3 if bold else 1.3}"{style} '
        f'points="{places}"><title>rank {rank}</title></polyline>'
    )


def _labels(
    ends: Mapping[int, tuple[float, float]], top: float, marked: Collection[int]
) -> list[str]:
    """The numbers of ranks at the ends of their lines, apart from each other."""
    shown = [rank for rank in ends if len(ends) <= FEW or rank in marked]
    drawn, last = [], float("inf")
    for rank in sorted(shown, key=lambda rank: -_y(ends[rank][1], top)):
        y = min(_y(ends[rank][1], top) + 4, last - 11)
        last = y
        bold = ' font-weight="bold"' if rank in marked else ""
        name = f"{rank} ◀" if rank in marked else str(rank)
        drawn.append(text(WIDTH - RIGHT + 5, y, name, extra=f' style="fill:{colour(rank)}"{bold}'))
    return drawn
