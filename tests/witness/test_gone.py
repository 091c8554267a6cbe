"""The package is taken away, in part or as a whole, or replaced: no Python minds."""

import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.launching import ROOT, clean_environ, run
from tests.support.matrix import mostly_full
from tests.support.witnessed import LINE
from tests.witness.asking import IDLE, TOLD, answer_of, listens, worker

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


@pytest.mark.full
@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_that_is_cut_anywhere_harms_no_python(path: Path, packages: Path):
    whole = (ROOT / path).read_bytes()
    for size in range(0, len(whole), max(1, len(whole) // 8)):
        (packages / path).write_bytes(whole[:size])
        shutil.rmtree((packages / path).parent / "__pycache__", ignore_errors=True)
        minds_nobody(packages)


def test_a_module_of_the_users_has_the_same_name(packages: Path):
    shutil.rmtree(packages / "spawnlaunch")
    (packages / "spawnlaunch.py").write_text("print('never to be seen')\nraise ValueError\n")
    (packages / "torch.py").write_text("there = True\n")
    assert starts(packages, "import torch; print(torch.there)", is_worker=False) == "True\n"


@pytest.mark.full
@pytest.mark.parametrize("damage", ["nothing", "the room is gone", f"{ANSWERING} is 'def'"])
def test_torch_itself_is_imported(damage: str, packages: Path):
    DAMAGES[damage](packages)
    script = f"sys.path.append({sysconfig.get_path('purelib')!r}); import torch; "
    for is_worker in (True, False):
        assert starts(packages, script + "print(torch.ones(1).item())", is_worker) == "1.0\n"


LATE = "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\n" + IDLE


@pytest.mark.parametrize(
    ("taken", "answers"), [("spawnlaunch", False), ("spawnlaunch/witness", False), ("", True)]
)
def test_it_is_taken_away_from_a_worker_that_runs(taken, answers, packages: Path, tmp_path: Path):
    """Before it imports torch: it does not answer, and says nothing of it; or afterwards."""
    start = READS.format(str(packages), "import runpy; runpy.run_path(sys.argv[1])")
    command = (sys.executable, "-S", "-c", start)
    with worker(tmp_path, IDLE if answers else LATE, *command, PYTHONPATH="") as one:
        one.line()
        shutil.rmtree(packages / taken)
        if answers:
            assert "script.py" in answer_of(one.pid, seconds=0.1).threads
        else:
            one.tell()
            assert one.line() == "ready"
            assert not listens(one.pid)
        assert one.ends() == (0, "")
