"""python -m tests.mutants --sample 600 --seed 1: which faults are found, and which are not."""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.mutants import engine
from tests.mutants.mutate import EQUIVALENT, ROOT, Mutant, mutants, mutated

MODULE_S = 900.0
HELD = 0.95  # that have to die


class Room(NamedTuple):
    """What finds the mutants of a room."""

    tests: tuple[str, ...]  # whose functions are called by the test itself, or that start programs
    seeds: int = 0  # simulated launches of one node
    several: int = 0  # and of several
    seldom: int = 0  # and of each kind to which something seldom happens


def _files(room: str, names: str) -> tuple[str, ...]:
    return tuple(f"tests/{room}/test_{name}.py" for name in names.split())


RUN = (
    *_files("run", "decisions restarts tree"),
    *_files("output", "lines output pipes"),
    *_files("outcome", "errorfile failures"),
)
OF_A_LAUNCH = ("run", "hang", "output", "outcome", "workers")
MULTINODE = "decisions hub member simulation wire connections settings words"
ROOMS = {
    "binding": Room(("tests/binding",)),
    "world": Room(("tests/world",)),
    "base": Room((*_files("base", "reading records"), *RUN), 300, 40, seldom=15),
    **{room: Room(RUN, 300, 40, seldom=15) for room in OF_A_LAUNCH},
    "multinode": Room(_files("multinode", MULTINODE), 20, 150),
}

# Tests that are about a part which its room's do not enter far enough, or no simulated launch does;
# the first that is named like the beginning of a mutant's path.
OF_PARTS = {
    "run/preload": "run/test_preload run/test_preload_image hang/test_hang",
    "multinode/hangs": "multinode/test_hangs",
    "hang/": "hang/test_hang",
    "workers/starting": "run/test_local run/test_preload run/test_terminal",
    "workers/environment": "run/test_local",
    **{
        f"run/{name}": "run/test_open_files run/test_guard_fails run/test_stopped "
        "run/test_refused_calls run/test_signals run/test_orphans "
        "messages/test_messages"
        for name in ("front", "guard")
    },
    "run/supervisor": "torchrun/test_said run/test_preload run/test_preload_image "
    "run/test_terminal run/test_disturbed run/test_signals "
    "run/test_stopped run/test_orphans",
    "run/processes": "run/test_orphans outcome/test_first_failure run/test_signals "
    "run/test_stopped run/test_refused_calls",
    "base/signals": "run/test_signals run/test_stopped run/test_early_signals",
    "multinode/node_launch": "multinode/test_absent multinode/test_returns multinode/test_launches",
    "multinode/announcements": "multinode/test_absent messages/test_messages",
    "base/say": "run/test_refused_calls run/test_restarts",
    "workers/files": "run/test_filing run/test_shared_places run/test_shared_paths "
    "messages/test_messages",
    "output/pipes": "output/test_lost_output",
    "run/shared_errors": "run/test_said_once",
    "workers/routes": "output/test_output run/test_filing run/test_shared_places "
    "run/test_shared_paths multinode/test_log_places messages/test_messages",
    "output/": "output/test_lost_output run/test_terminal watch/test_top run/test_open_files",
    "multinode/server": "multinode/test_launches",
    "world/refusals": "calling/test_scripts",
    **{
        f"{room}/": "run/test_orphans run/test_guard_fails run/test_signals run/test_terminal "
        "output/test_output output/test_lost_output run/test_stopped run/test_namespaces "
        "run/test_without_guard run/test_local run/test_refused_calls run/test_timeout"
        for room in ("run", "outcome", "workers")
    },
}


def of_part(path: str) -> tuple[str, ...]:
    """The files of tests that are about this one."""
    names = next((n for part, n in OF_PARTS.items() if f"spawnlaunch/{part}" in path), "")
    return tuple(f"tests/{name}.py" for name in names.split())


def sampled(rooms: list[str], count: int, seed: int, only: str) -> list[Mutant]:
    """`count` mutants of these rooms, evenly from all that there are, but for the equivalent.

    Each has a place of its own in the order: where other code changes, the same ones are drawn.
    """
    found = []
    for room in rooms:
        for path in sorted((ROOT / "spawnlaunch" / room).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if only in name:
                found += [each for each in mutants(name) if each.key not in EQUIVALENT]
    return sorted(found, key=lambda each: random.Random(f"{seed} {each.key}").random())[:count]


class Record:
    """A line of JSON for each mutant that was tried; what is dead there is not tried again."""

    def __init__(self, path: Path | None) -> None:
        self._out = os.fdopen(os.dup(2), "w")  # which no test redirects
        self._file = path.open("a") if path else None
        lines = path.read_text().splitlines() if path else []
        self.outcomes = {each["mutant"]: each for each in map(json.loads, lines)}

    def add(self, mutant: Mutant, by: str, cpu_s: float) -> None:
        each = {"mutant": mutant.key, "line": mutant.line, "by": by, "cpu_s": round(cpu_s, 2)}
        self.outcomes[mutant.key] = each
        outcome = f"dead by {by}" if by else "ALIVE"
        place = f"{mutant.path}:{mutant.line} {mutant.function}"
        print(f"{place}: {mutant.change}: {outcome} ({cpu_s:.1f} s)", file=self._out, flush=True)
        if self._file:
            print(json.dumps(each), file=self._file, flush=True)


def by_pytest(mutant: Mutant, tests: tuple[str, ...]) -> tuple[str, float]:
    """What finds a mutant in a tree of its own, by the tests as a user runs them; and the CPU."""
    with tempfile.TemporaryDirectory() as top:
        tree = Path(top, "tree")
        skipped = shutil.ignore_patterns(".*", "build", "__pycache__")
        shutil.copytree(ROOT, tree, symlinks=True, ignore=skipped)
        Path(tree, mutant.path).write_text(ast.unparse(mutated(mutant)))
        environ = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider"]
        command += ["-m", "not nightly", "--basetemp", f"{top}/tmp", *tests]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            done = subprocess.run(
                command, cwd=tree, env=environ, capture_output=True, text=True, timeout=MODULE_S,
                check=False, start_new_session=True,  # some signal their whole group
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            by = "time"
        else:
            last = [line for line in done.stdout.splitlines() if line[:7] in ("FAILED ", "ERROR t")]
            by = last[0].split()[1] if last else f"status {done.returncode}"
            by = by if done.returncode else ""
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        _kill_what_is_left(str(tree))
        subprocess.run(["rm", "-rf", f"{top}/tmp"], check=True)  # may be too deep for Python
        return by, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _kill_what_is_left(tree: str) -> None:
    """Mutants of what ends processes leave some, and those may spin."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PYTHONPATH") == tree:
                process.kill()


def try_room(name: str, tried: list[Mutant], record: Record, at_once: int, real: bool) -> None:
    """Try a room's mutants: in children of this process, then what lives as a tree of its own."""
    room, out = ROOMS[name], sys.stderr
    said, rest = os.dup(2), {each.key for each in tried}

    def then(session: pytest.Session) -> None:
        checks = tests.checks(session, lambda words: print(words, file=out, flush=True))
        checks += engine.launches(room.seeds, room.several, room.seldom)
        cost = sum(check.cost_s for check in checks)
        print(f"{name}: {len(checks)} checks of {cost:.0f} s", file=out, flush=True)
        inside = [each for each in tried if each.function]
        for mutant, outcome in engine.try_all(inside, checks, at_once):
            if outcome.by or not real:
                record.add(mutant, outcome.by, outcome.cpu_s)
                rest.discard(mutant.key)

    tests = engine.Tests(then)
    out = os.fdopen(said, "w")
    with open(os.devnull, "w") as null:
        kept = os.dup(1)
        for fd in (1, 2):
            os.dup2(null.fileno(), fd)
        options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(ROOT)]
        pytest.main([*options, *room.tests], plugins=[tests])
        os.dup2(kept, 1)
        os.dup2(said, 2)
    if real:
        with ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn")) as pool:
            begun = {
                pool.submit(by_pytest, mutant, (*of_part(mutant.path), *room.tests)): mutant
                for mutant in tried
                if mutant.key in rest
            }
            for done in as_completed(begun):
                record.add(begun[done], *done.result())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=600, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--rooms", default=",".join(ROOMS), metavar="ROOM,...")
    parser.add_argument("--only", default="", metavar="TEXT", help="files with this in their path")
    parser.add_argument("--at-once", type=int, default=2, metavar="N")
    parser.add_argument("--record", type=Path, metavar="FILE", help="goes on where it has ended")
    parser.add_argument("--quick", action="store_true", help="without tests that start programs")
    chosen = parser.parse_args()
    rooms, record = chosen.rooms.split(","), Record(chosen.record)
    drawn = sampled(rooms, chosen.sample, chosen.seed, chosen.only)
    for room in rooms:
        mine = [each for each in drawn if each.path.split("/")[1] == room]
        new = [each for each in mine if not record.outcomes.get(each.key, {}).get("by")]
        if new:
            try_room(room, new, record, chosen.at_once, not chosen.quick)
        summed(room, mine, record)
    outcomes = [record.outcomes[each.key] for each in drawn if each.key in record.outcomes]
    return sum(bool(each["by"]) for each in outcomes) < len(outcomes) * HELD


def summed(room: str, mine: list[Mutant], record: Record) -> None:
    """Print what came of a room."""
    outcomes = [record.outcomes[each.key] for each in mine if each.key in record.outcomes]
    dead = [each for each in outcomes if each["by"]]
    by = Counter(each["by"].split("::")[0].split(" of ")[-1] for each in dead)
    cpu_s = sum(each["cpu_s"] for each in outcomes)
    print(f"{room}: {len(outcomes)} tried, {len(dead)} found, {len(outcomes) - len(dead)} live; "
          f"{cpu_s / max(1, len(outcomes)):.1f} s of CPU for each")  # fmt: skip
    for killer, count in by.most_common():
        print(f"    {count:4} by {killer}")
    for each in outcomes:
        if not each["by"]:
            print(f"    lives: line {each['line']} of {each['mutant']}")


if __name__ == "__main__":
    sys.exit(main())
