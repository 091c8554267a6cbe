"""The record of a launch that fails, which tests of several files read."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.launching import clean_environ, launch, run

FAILS = """
import os, pathlib, time
def samples():
    files = pathlib.Path(os.environ["RECORD"]).glob("*.jsonl")
    return sum(file.read_text().count('"kind": "sample"') for file in files)
print("<b>said</b>", flush=True)
before = samples()
while os.environ["RANK"] == "0" or samples() < before + 3:
    time.sleep(0.2)
raise ValueError("bad <i>")
"""


class Recorded(NamedTuple):
    """A directory of --record."""

    directory: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Of each file those that are there to their ends."""
        files = sorted(self.directory.glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().split("\n")[:-1]]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def page(self) -> str:
        """What spawnlaunch.report makes of it."""
        words = ("-m", "spawnlaunch.report", self.directory, "--html", "-")
        return run(sys.executable, *words, check=True).stdout


@pytest.fixture(scope="session")
def failed_twice(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Of two ranks, of which 1 fails at both attempts."""
    directory = tmp_path_factory.mktemp("failed")
    (directory / "fails.py").write_text(FAILS)
    flags = ("--nproc", 2, "--quiet", "--max-restarts", 1, "--record", directory / "record")
    environ = clean_environ(RECORD=str(directory / "record"))
    done = launch(*flags, directory / "fails.py", environ=environ)
    assert done.returncode == 1, done.stderr
    return Recorded(directory / "record")
