"""The recording of a terminal on the landing page, and a still of top.

    python -m docs.recording      on a quiet machine: writes recording.svg and top.svg

The commands are typed into a shell in tmux(1), and its screen is captured when each has run. The
film is an SVG which shows one screen after the other by CSS, and fetches nothing; who prefers no
motion sees the last screen.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

ROOT = Path(__file__).parents[1]
COLUMNS, ROWS = 100, 18
EVERY_S, REST_S = 0.1, 1.0
ENOUGH_S = 300.0
CHAR, LINE, MARGIN = 7.23, 16, 12  # pixels, with letters of 12
COLORS = {"background": "#16181d", "text": "#d6d8dc", "edge": "#4a4e57"}
PROMPT = "$ "

FILES = {
    "broken.py": """\
import os, time
rank = int(os.environ["RANK"])
batch = [[1, 2, 3], [4, 5]][rank]
time.sleep(rank / 4)  # the failure comes last, so its traceback is not shown again
print("third of the batch:", batch[2])
""",
    "slow.py": """\
import time, torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradient, kept = torch.ones(1 << 16), []
for step in range(100000):
    time.sleep(0.05)
    if dist.get_rank() == 1:
        time.sleep(0.1)
    if dist.get_rank() == 0:
        kept.append(torch.ones(1 << 19))
    dist.all_reduce(gradient)
""",
}


class Scene(NamedTuple):
    """A line that is typed, and words (a pattern) that are on the screen when it has run."""

    line: str
    until: str
    stays_s: float = 5.0
    then: str = ""  # a key, which ends what runs; that takes the whole screen


SCENES = (
    Scene("spawnlaunch --nproc 2 broken.py; echo status $?", "^status 1"),
    Scene("cat slow.py; spawnlaunch --nproc 2 --quiet slow.py &", r"^\[1\] \d", 4.0),
    Scene(
        "spawnlaunch top slow.py",
        r"the others wait for rank 1(.|\n)*memory of rank 0 grew",
        7.0,
        "q",
    ),
)


class Screen(NamedTuple):
    """The lines of the terminal from a time on, in seconds, with their colours as ANSI codes.

    The last screen is empty: it is the end.
    """

    at: float
    lines: tuple[str, ...]


class Terminal:
    """A shell in tmux that this program types into."""

    def __init__(self, place: Path) -> None:
        self._tmux = ("tmux", "-L", f"recording-{place.name}", "-f", "/dev/null")
        binaries = Path(sys.executable).parent
        variables = (f"PATH={binaries}:/usr/bin:/bin", f"PYTHONPATH={ROOT}", f"PS1={PROMPT}",
                     f"HOME={place}", f"TMPDIR={place}")  # fmt: skip
        shell = (
            "env",
            "-i",
            "TERM=tmux-256color",
            "LANG=C.UTF-8",
            *variables,
            "bash",
            "--norc",
            "--noprofile",
        )
        size = ("-x", str(COLUMNS), "-y", str(ROWS))
        self._run("new-session", "-d", *size, "-c", str(place), *shell)

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def type(self, letters: str) -> None:
        self._run("send-keys", "-l", letters)

    def press(self, key: str) -> None:
        self._run("send-keys", key)

    def lines(self) -> tuple[str, ...]:
        return tuple(self._run("capture-pane", "-ep").splitlines())

    def end(self) -> None:
        self._run("kill-server")


def recorded(place: Path) -> list[Screen]:
    """Type all lines, and see what is on the screen when each has run."""
    for name, text in FILES.items():
        (place / name).write_text(text)
    terminal, screens = Terminal(place), [Screen(0.0, ())]
    try:
        wait(terminal, re.escape(PROMPT.strip()))
        for scene in SCENES:
            if not scene.then:
                terminal.press("C-l")
            terminal.type(scene.line)
            if scene.then:  # so the line is seen on the screen before
                time.sleep(REST_S)
                screens[-2] = screens[-2]._replace(lines=terminal.lines())
            terminal.press("Enter")
            wait(terminal, scene.until)
            time.sleep(REST_S)
            screens[-1] = screens[-1]._replace(lines=terminal.lines())
            screens.append(Screen(screens[-1].at + scene.stays_s, ()))
            if scene.then:
                terminal.type(scene.then)
    finally:
        terminal.type("kill %1\n")
        time.sleep(REST_S)  # for what runs to end by itself
        terminal.end()
    return screens


def wait(terminal: Terminal, words: str) -> None:
    """Until they are on the screen. Raises RuntimeError where they do not come."""
    until = time.monotonic() + ENOUGH_S
    while not re.search(words, "\n".join(terminal.lines()), re.M):
        if time.monotonic() > until:
            raise RuntimeError(f"the recording waits for {words}, which does not come")
        time.sleep(EVERY_S)


class Shown(NamedTuple):
    """A line in a row of the terminal, between two times."""

    row: int
    line: str
    begin: float
    end: float


def shown(screens: Sequence[Screen]) -> Iterator[Shown]:
    """Each line once for as long as it stands."""
    end = screens[-1].at
    standing: dict[int, Shown] = {}
    for screen in screens:
        for row in range(ROWS):
            line = screen.lines[row] if row < len(screen.lines) else ""
            before = standing.get(row)
            if before is None or before.line != line:
                if before and before.line:
                    yield before._replace(end=screen.at)
                standing[row] = Shown(row, line, screen.at, end)


def film(screens: Sequence[Screen]) -> str:
    """All screens, one after the other, again and again."""
    end = screens[-1].at
    # The name of an animation comes after what all have in common, which would take it back.
    rules = [f".f{{opacity:0;animation:{end:.2f}s step-end infinite}}"]
    texts = []
    for number, line in enumerate(shown(screens)):
        begin, over = (100 * at / end for at in (line.begin, line.end))
        rules.append(
            f"@keyframes k{number}{{0%{{opacity:{int(begin == 0)}}}{begin:.3f}%{{opacity:1}}"
            f"{over:.3f}%{{opacity:{int(line.end == end)}}}100%{{opacity:{int(line.end == end)}}}}}"
            f".k{number}{{animation-name:k{number}}}"
        )
        still = " still" * (line.begin == 0)  # the failure
        texts.append(f'<g class="f k{number}{still}">{drawn(line.row, line.line)}</g>')
    rules.append("@media (prefers-reduced-motion:reduce){.f{animation:none}.still{opacity:1}}")
    return svg(ROWS, "a launch, a failure that is named, and top", texts, rules)


def still(screen: Screen) -> str:
    """Draw a screen without its empty lines."""
    lines = [line for line in screen.lines if line]
    texts = [drawn(row, line) for row, line in enumerate(lines)]
    return svg(len(lines), "top: which rank the others wait for, and which one leaks", texts)


def svg(rows: int, label: str, parts: Sequence[str], rules: Sequence[str] = ()) -> str:
    """A terminal of so many rows, with these parts in it."""
    width, height = COLUMNS * CHAR + 2 * MARGIN, rows * LINE + 2 * MARGIN
    letters = (
        "text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;"
        f"fill:{COLORS['text']}}}"
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" '
        f'aria-label="{label}">',
        f"<style>{letters}{''.join(rules)}</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{COLORS["background"]}" '
        f'stroke="{COLORS["edge"]}"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def drawn(row: int, line: str) -> str:
    """A line with its colours, each part in its column."""
    console = Console(width=COLUMNS, color_system="truecolor", force_terminal=True)
    y, column, behind, letters = MARGIN + row * LINE, 0, [], []
    for segment in Text.from_ansi(line).render(console):
        style, x = segment.style or Style(), MARGIN + column * CHAR
        color, back = (
            each.get_truecolor(SVG_EXPORT_THEME).hex if each else "" for each in colors(style)
        )
        if back:
            width = segment.cell_length * CHAR
            behind.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LINE}" fill="{back}"/>'
            )
        if segment.text.strip():
            fill, weight = (
                f' fill="{color}"' * bool(color),
                ' font-weight="bold"' * bool(style.bold),
            )
            letters.append(
                f'<tspan x="{x:.1f}"{fill}{weight}>{escape(segment.text.rstrip())}</tspan>'
            )
        column += segment.cell_length
    return f'{"".join(behind)}<text y="{y + LINE - 4}">{"".join(letters)}</text>'


def colors(style: Style) -> tuple[Color | None, Color | None]:
    """Return the colours of the letters and of their background; None: the terminal's own."""
    if style.reverse:
        back, letters = (Color.parse(COLORS[name]) for name in ("background", "text"))
        return unless_default(style.bgcolor) or back, unless_default(style.color) or letters
    return unless_default(style.color), unless_default(style.bgcolor)


def unless_default(color: Color | None) -> Color | None:
    """Return the colour; None where it is the terminal's own."""
    return None if color is None or color.is_default else color


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="directory")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as place:
        screens = recorded(Path(place))
    (options.out / "recording.svg").write_text(film(screens))
    (options.out / "top.svg").write_text(still(screens[-2]))


if __name__ == "__main__":
    main()
