"""Functions that a program launches: spawnlaunch.launch() beside torch's two ways."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Protocol

from tests.beside.launching import CASES, SPAWNLAUNCH, Job, Outcome, in_words

# What each rank does, and the words that the caller has to be told.
FUNCTIONS = """
import os, sys

def leaves():
    if os.environ["RANK"] == "1":
        os._exit(0)
    import time
    time.sleep(3)

def raises():
    if os.environ["RANK"] == "1":
        try:
            {}["the reason"]
        except KeyError as error:
            raise ValueError("of that") from error
    import time
    time.sleep(600)

def skips():
    import pytest
    pytest.skip("no GPU")
"""

# How each calls them: a call of `call(function)`.
CALLS = {
    "launch()": """
import spawnlaunch

def call(function):
    return spawnlaunch.launch(function, nproc=2)
""",
    "elastic_launch": """
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

def call(function):
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", run_id="1", max_restarts=0,
    )
    return elastic_launch(config, function)()
""",
    "mp.spawn": """
import os
import torch.multiprocessing
import functions

def ranked(rank, name):
    os.environ["RANK"] = str(rank)
    getattr(functions, name)()

def call(function):
    return torch.multiprocessing.spawn(ranked, (function.__name__,), nprocs=2)
""",
}  # fmt: skip
TRIES = """
import sys, traceback
import calls, functions

if __name__ == "__main__":
    try:
        calls.call(getattr(functions, sys.argv[1]))
    except Exception:
        print("CAUGHT", traceback.format_exc(), flush=True)
        sys.exit(3)
    print("RETURNED", flush=True)
"""
TEST = """
import calls, functions

def test_it():
    calls.call(functions.skips)
"""


def called(job: Job, torchs: str, *words: str) -> tuple[dict[str, int | None], float, str]:
    way = "launch()" if job.program == SPAWNLAUNCH else torchs
    for name, text in {
        "functions": FUNCTIONS, "calls": CALLS[way], "tries": TRIES, "test_it": TEST,
    }.items():  # fmt: skip
        (job.directory / f"{name}.py").write_text(text)
    job.command("a", sys.executable, *words, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    statuses, seconds = job.ends(since=time.monotonic() + 60.0)  # to import torch, four times
    return statuses, seconds + 60.0, job.said("a")


def leaves(job: Job, torchs: str) -> Outcome:
    """Whoever calls it is told that a rank returned nothing."""
    statuses, seconds, said = called(job, torchs, "tries.py", "leaves")
    told = "an exception" if "CAUGHT" in said else "nothing"
    named = "rank 1" in said.partition("CAUGHT")[2] or "rank      : 1" in said
    words = f"{in_words(statuses)}: {told}{', rank 1 named' if named else ''}"
    return Outcome(words, seconds, told == "an exception" and named)


def raises(job: Job, torchs: str) -> Outcome:
    """The exception that is caught has what was raised, with its cause."""
    statuses, seconds, said = called(job, torchs, "tries.py", "raises")
    caught = said.partition("CAUGHT")[2]
    has = [each for each in ("ValueError: of that", "KeyError: 'the reason'") if each in caught]
    words = f"{in_words(statuses)}: {' and '.join(has) or 'neither exception nor cause'}"
    return Outcome(words, seconds, len(has) == 2)


def skips(job: Job, torchs: str) -> Outcome:
    """A test whose ranks skip is skipped."""
    statuses, seconds, said = called(job, torchs, "-m", "pytest", "-q", "test_it.py")
    is_skipped = "1 skipped" in said
    words = said.splitlines()[-1] if said else "says nothing"
    return Outcome(f"{in_words(statuses)}: {words}", seconds, is_skipped)


class Way(Protocol):
    def __call__(self, job: Job, torchs: str) -> Outcome: ...


WAYS: dict[str, Way] = {
    "a rank ends with 0 and no result": leaves,
    "an exception has a cause": raises,
    "a rank calls pytest.skip": skips,
}
for what, how in WAYS.items():
    for torchs in ("elastic_launch", "mp.spawn"):
        CASES[f"launch() beside {torchs}: {what}"] = partial(how, torchs=torchs)
