"""`top --once` names the rank that hangs, with its line and the collective."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.launching import clean_environ, run, start
from tests.support.processes import until
from tests.support.witnessed import needs_line
from tests.watch.ranks import TOP

BEGINS = "from spawnlaunch import witness; witness.begin()\n"
KEEPS = "import ctypes, time\ntime.sleep = ctypes.PyDLL(None).sleep\n"
NEVER_COMES = """import time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    time.sleep(3600)  # fault
dist.all_reduce(torch.ones(1))  # call
"""
OURS = (sys.executable, "-m", "spawnlaunch", "--quiet", "--nproc=2")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2")


@contextmanager
def running(launcher: tuple[str, ...], script: Path) -> Iterator[None]:
    launch = start(*launcher, script, environ=clean_environ(OMP_NUM_THREADS="1"))
    try:
        yield
    finally:
        launch.terminate()
        launch.communicate()


def waited_for(script: Path) -> list[dict[str, object]]:
    """Who is waited for in the launch of this script; before that one may be on its way yet."""
    found: list[dict[str, object]] = []

    def look() -> bool:
        lines = run(*TOP, "--once", "--json", script).stdout.splitlines()
        found.extend(one for one in map(json.loads, lines) if one.get("kind") == "waited for")
        return bool(found)

    until(look, "somebody is waited for")
    return found


def line(script: Path, mark: str) -> str:
    lines = script.read_text().splitlines()
    return f"{script.name}:{next(n for n, each in enumerate(lines, 1) if each.endswith(mark))}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("launcher", "begins"),
    [*(pytest.param(OURS, each, marks=needs_line) for each in ("", KEEPS)), (TORCHRUN, BEGINS)],
    ids=["spawnlaunch", "a thread keeps the GIL", "torchrun"],
)
def test_who_never_comes(launcher: tuple[str, ...], begins: str, tmp_path: Path) -> None:
    script = tmp_path / "never.py"
    script.write_text(begins + NEVER_COMES)
    with running(launcher, script):
        (one,) = waited_for(script)
    assert one["rank"] == 1
    before, _, at = str(one["words"]).partition("; it is at ")
    assert before.endswith(f"so far, before {line(script, '# call')} (all_reduce)")
    assert at == ("" if begins == KEEPS else line(script, "# fault"))


@pytest.mark.full
@needs_line
def test_the_record_has_each_place_of_a_hang(tmp_path: Path) -> None:
    """As of a rank that has prepared the data, and hangs later."""
    script = tmp_path / "twice.py"
    again = NEVER_COMES[NEVER_COMES.index("if") :].replace("# fault", "# again")
    script.write_text(NEVER_COMES.replace("3600", "10") + again)

    def is_noted() -> bool:
        said = "".join(file.read_text() for file in tmp_path.glob("*.jsonl"))
        return all(f"it is at {line(script, mark)}" in said for mark in ("# fault", "# again"))

    with running((*OURS, "--record", str(tmp_path)), script):
        until(is_noted, "both places are noted")
