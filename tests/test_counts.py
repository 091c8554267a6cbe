"""A launch on one machine imports no more modules and opens no more files than it once did.

Each module and each file is a look-up on a shared file system, times all ranks. What Python itself
needs, and the modules of its library that are in LIBRARY, are measured in the same run and taken
off, so that the figures hold for other versions of Python and on other machines. Of what belongs
to the kernel (/sys, /proc and /dev, which differ from machine to machine) what reading the node
opens is taken off; tests/node/test_cost.py limits that.

The limits were counted at the commit that brought `make full`. Where one is too low now, save a
module or a file elsewhere before it is raised.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.counts.imported import imported
from tests.counts.lookups import opened, traced
from tests.counts.ways import WAYS
from tests.support.required import require_programs

require_programs("strace", package="strace")

# What the launch path imports of Python's library; more of it is more than these.
LIBRARY = """
import __future__, argparse, ctypes, gc, runpy, select, signal, zlib, _socket
argparse.ArgumentParser()
"""
READING = "from spawnlaunch import node; node.read()"


class Limits(NamedTuple):
    """The most that a launch may come to."""

    modules: int  # of spawnlaunch
    opened: int  # files, and kinds of files of the kernel: what one needs can be saved in the other


LIMITS = {
    "two workers": Limits(86, 83 + 7),
    "one worker": Limits(86, 83 + 6),
    "a task": Limits(70, 66 + 1),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where launches run, and what they compile is kept: a checkout may have been compiled before
    it was changed, and a file that is not compiled is opened twice."""
    directory = tmp_path_factory.mktemp("counts")
    (directory / "worker.py").write_text("")
    return directory


@pytest.mark.parametrize("name", WAYS)
def test_no_more_modules_are_imported(name: str, directory: Path) -> None:
    way = WAYS[name]
    ours = imported(way, directory, *way.words("worker.py"))
    ours -= imported(way, directory, "-c", LIBRARY)
    assert {module for module in ours if not module.startswith("spawnlaunch")} == set()
    assert len(ours) <= LIMITS[name].modules


@pytest.mark.parametrize("name", WAYS)
def test_no_more_files_are_opened(name: str, directory: Path) -> None:
    way = WAYS[name]
    launch = opened(traced(way, directory, *way.words("worker.py")))
    library = opened(traced(way, directory, "-c", LIBRARY))
    reading = opened(traced(way, directory, "-c", READING))
    files = launch.files - library.files
    of_the_kernel = launch.of_the_kernel - reading.of_the_kernel
    assert files + of_the_kernel <= LIMITS[name].opened, (launch, library, reading)
