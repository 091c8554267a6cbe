"""Kill a run again and again, resume it each time, and see whether anything shows."""

import contextlib
import importlib
import os
import random
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.late import Late
from tests.support.launching import LAUNCHER, start
from tests.support.processes import nothing_left_behind, processes_with
from tests.train import ranks as running
from tests.train.ranks import (
    ON_TEXT,
    ROOT,
    complete,
    environment,
    history,
    text_of,
)

checkpoint = Late("spawnlaunch.train.checkpoint")

# Buckets of 1 MiB hold the gradients of a few layers, so that there are several of them; a
# checkpoint every third step is being written for most of the time.
FLAGS = (
    *(*ON_TEXT, "--layers", "3", "--width", "96", "--context", "32"),
    *("--bucket-mb", "1", "--accumulate", "2", "--batch-size", "2", "--seed", "5"),
    *("--log-every", "1", "--eval-every", "10", "--save-every", "3", "--resume", "auto"),
)

NOISY = text_of("noisy")


def kill_one_and_resume(
    cwd: Path, world: int, steps: int, kills: int, seed: int, loaders: int
) -> tuple[int, int]:
    """Compare a run with one of which a rank, or the launcher itself, is killed again and again.

    Ranks of the killed run have so many ``loaders`` each; those of the other read by themselves.
    Returns how many kills hit a rank, and how many the launcher, of a run under way.
    """
    (cwd / "noisy.py").write_text(NOISY)
    flags = (*FLAGS, "--task", "noisy.py:Double", "--steps", str(steps))
    began = time.monotonic()
    complete(world, *flags, "--out", "whole", cwd=cwd)
    whole_s = time.monotonic() - began
    flags = (*flags, "--loader-workers", str(loaders), "--out", "killed")
    moments, hits = random.Random(seed), [0, 0]
    for number in range(kills):
        mark = uuid.uuid4().hex
        with nothing_left_behind(mark):
            environ = environment(0, 0, 0, KILLED=mark, PYTHONPATH=str(ROOT))
            words = (*LAUNCHER, "--nproc", world, "--quiet", "--", *flags)
            launcher = start(*words, cwd=cwd, environ=environ, stderr=subprocess.DEVNULL)
            lines = iter(launcher.stdout.readline, "")
            under_way = any(line.startswith("writing to") for line in lines)
            time.sleep(number and moments.uniform(0, 2 * whole_s / kills))
            ranks = ranks_of(mark)
            of_launcher = number % 3 == 0  # a run has more ranks than launchers
            victim = launcher.pid if of_launcher or not ranks else moments.choice(ranks)
            hits[of_launcher] += under_way and launcher.poll() is None
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            launcher.communicate()
        all_are_whole(cwd / "killed")
    complete(world, *flags, cwd=cwd)
    killed, whole = cwd / "killed", cwd / "whole"
    assert [*map(pytest.approx, history(killed))] == history(whole)  # to 1e-6
    assert_close = importlib.import_module("torch").testing.assert_close
    assert_close(weights(killed), weights(whole), rtol=1e-6, atol=1e-10)
    assert not list((cwd / "killed").glob("*.part"))
    return hits[0], hits[1]


def ranks_of(mark: str) -> list[int]:
    """The ranks among the processes with this mark, as their command lines tell."""
    found = []
    for pid in processes_with(mark):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if len(words) > 2 and words[1] == b"-u" and words[2].endswith(b"train/__main__.py"):
                found.append(pid)
    return found


def weights(out: Path) -> dict[str, Any]:
    """The weights in the newest checkpoint of a run."""
    return running.weights(out, checkpoint.step_of(checkpoint.all_in(out)[0]))


def all_are_whole(out: Path) -> None:
    """Every checkpoint that has its name is whole, whenever the run was killed."""
    if out.exists():
        assert not list(filter(None, map(checkpoint.damage, checkpoint.all_in(out))))
