"""A task for each kind of data, which notes the samples of every step; and how to compare runs."""

import json
import random
from collections import Counter
from pathlib import Path

from tests.train.ranks import complete, run, text_of

TASKS = text_of("streams")
KINDS = ("Lengths", "States", "Map", "Turns", "Buffered")
STEPS = 24
FLAGS = (
    *("--device", "cpu", "--lr", "1e-3", "--schedule", "linear", "--warmup", "0", "--clip", "0.5"),
    *("--eval-every", "8", "--save-every", "3", "--log-every", "4", "--steps", str(STEPS)),
)
Taken = dict[float, Counter[int]]  # how often each sample is in the step of this rate


def flags_of(kind: str) -> tuple[str, ...]:
    """Those that every run of a kind of data has."""
    size = ("--global-tokens", "700") if kind == "Lengths" else ("--global-batch", "48")
    return (*FLAGS, *size, "--task", f"streams.py:{kind}")


def taken(cwd: Path, launch: str) -> Taken:
    """Which samples the ranks of a launch have trained on in each step."""
    found: Taken = {}
    for file in sorted(cwd.glob(f"samples-{launch}-*")):
        for line in file.read_text().splitlines():
            rate, samples = json.loads(line)
            found.setdefault(rate, Counter()).update(samples)
    return found


def undisturbed(cwd: Path, kind: str) -> Taken:
    """What a run on one rank takes, which writes to ``alone``."""
    (cwd / "streams.py").write_text(TASKS)
    complete(1, *flags_of(kind), "--out", "alone", cwd=cwd)
    return taken(cwd, "alone")


def rough(cwd: Path, kind: str, dice: random.Random, most: int, kills: int) -> list[Taken]:
    """The same run on other numbers of ranks, one of which is killed now and then, to ``rough``.

    Returns what the ranks of each launch have taken; the last of them ends well.
    """
    for number in range(kills + 1):
        world, passes = dice.randint(1, most), dice.randint(1, 3)
        flags = (*flags_of(kind), "--accumulate", str(passes), "--resume", "auto")
        loaders = ("--loader-workers", dice.choice("02"))
        dies = f"{dice.randrange(world)}:{dice.randint(2, STEPS * passes // (kills + 1))}"
        known = {"LAUNCH": f"rough{number}", "DIES": dies if number < kills else ""}
        ended = run(world, *flags, *loaders, "--out", "rough", cwd=cwd, **known)
        assert ({one.status for one in ended} == {0}) == (number == kills), ended
    return [taken(cwd, f"rough{number}") for number in range(kills + 1)]
