"""The package is taken away, in part or as a whole, or replaced: no Python minds."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.launching import ROOT, clean_environ, run
from tests.support.matrix import mostly_full
from tests.support.witnessed import LINE
from tests.witness.asking import TOLD

# As Python's own start reads a directory of packages, here one of ours in place of them.
READS = "import site, sys; site.addsitedir({!r}); {}"
ENVIRON = {k: v for k, v in clean_environ().items() if k != "PYTHONPATH"}
WITNESS = ROOT / "spawnlaunch" / "witness"
OWN = Path("spawnlaunch", "__init__.py")
BEGIN = Path("spawnlaunch", "witness", "__init__.py")
ANSWERING = Path("spawnlaunch", "witness", "answering.py")
FILES = (OWN, BEGIN, ANSWERING)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A directory of packages as a wheel leaves it, as far as a worker reads that."""
    place = tmp_path / "packages"
    (place / "spawnlaunch").mkdir(parents=True)
    shutil.copy(ROOT / OWN, place / OWN)
    shutil.copytree(WITNESS, place / "spawnlaunch" / "witness")
    shutil.copy(WITNESS / LINE, place)
    return place


def starts(packages: Path, script: str, is_worker: bool) -> str:
    """What a Python prints that starts with these packages."""
    words = [sys.executable, "-S", "-c", READS.format(str(packages), script)]
    done = run(*(TOLD if is_worker else ()), *words, environ=ENVIRON)
    assert (done.returncode, done.stderr) == (0, ""), packages
    return done.stdout


def minds_nobody(packages: Path) -> None:
    (packages / "torch.py").write_text("there = True\n")
    for is_worker in (True, False):
        assert starts(packages, "import torch; print(torch.there)", is_worker) == "True\n"


def without(path: Path) -> Callable[[Path], None]:
    def take(packages: Path) -> None:
        there = packages / path
        shutil.rmtree(there) if there.is_dir() else there.unlink()

    return take


def instead(path: Path, text: str) -> Callable[[Path], None]:
    return lambda packages: (packages / path).write_text(text) and None


WRONG = ("", "def", "import nothing_of_this_name", "raise ValueError", "\0\0", "x = ", "assert 0")
DAMAGES = {
    "nothing": lambda _: None,
    "the package is gone": without(Path("spawnlaunch")),
    "the room is gone": without(Path("spawnlaunch", "witness")),
    "only the line is gone": without(Path(LINE)),
    **{f"{path} is gone": without(path) for path in FILES},
    **{f"{path} is {text!r}": instead(path, text) for text in WRONG for path in FILES},
    "another version": instead(BEGIN, "def begin(where):\n    pass\n"),
    "one whose names are others": instead(ANSWERING, "class Answers:\n    pass\n"),
    "one that says more": instead(ANSWERING, "def Witness(address, more):\n    pass\n"),
}


@pytest.mark.parametrize("damage", mostly_full(DAMAGES, 7))
def test_a_package_that_is_half_there_harms_no_python(damage: str, packages: Path):
    DAMAGES[damage](packages)
    minds_nobody(packages)


def test_a_module_of_the_users_has_the_same_name(packages: Path):
    shutil.rmtree(packages / "spawnlaunch")
    (packages / "spawnlaunch.py").write_text("print('never to be seen')\nraise ValueError\n")
    (packages / "torch.py").write_text("there = True\n")
    assert starts(packages, "import torch; print(torch.there)", is_worker=False) == "True\n"
