"""spawnlaunch.launch in a script, which may be interrupted, killed, or written without care."""

import signal
import sys
from pathlib import Path

import pytest

from tests.support.launching import clean_environ, run
from tests.support.matrix import mostly_full
from tests.support.processes import until
from tests.support.slurm_variables import SHELL_OF_TWO_NODES
from tests.support.watching import launched

POINTS = """
import os, spawnlaunch, sys
sys.path.insert(0, "aside")
import mine
print("this is the script", flush=True)
class Point:
    def __init__(self, x): self.x = x
def point(x):
    return Point(mine.double(x) + int(os.environ["RANK"]))
found = spawnlaunch.launch(point, 5, nproc=2, quiet=True)
print([each.x for each in found], all(isinstance(each, Point) for each in found))
def own():
    def inner(): raise ValueError("bad")  # here
    inner()
spawnlaunch.launch(own, quiet=True)
"""
WITHOUT = """
import functools, os, sys
sys.modules["cloudpickle"] = None
from spawnlaunch import UsageError, WorkerError, launch
class Point:
    def __init__(self, x): self.x = x
class Own(Exception): pass
def own(point): return Point(2 * point.x), sys.argv[1:]
def fails(): raise Own(3)
def local():
    def inner(): pass
    return inner
if __name__ == "__main__":
    def below(): pass
    print("this is the script", flush=True)
    ((found, words),) = launch(own, Point(2), quiet=True)
    again = launch(functools.partial(own, found), quiet=True)
    print(type(found) is Point, found.x, words, again[0][0].x)
    try:
        launch(fails, quiet=True)
    except WorkerError as error:
        print(repr(error.__cause__), isinstance(error.__cause__, Own), str(error).splitlines()[0])
    for words in [lambda: 3], [local()], [print, {1: [local()]}]:
        try:
            launch(*words)
        except UsageError as error:
            assert "cannot be sent to the workers" in str(error), error
            assert "run pip install cloudpickle" in str(error), error
        else:
            print("no error")
    try:
        launch(below, quiet=True)
    except WorkerError as error:
        assert "write it above if __name__" in str(error), error
    print(launch(os.getenv, "RANK", nproc=2, quiet=True))
"""
WITHOUT_SAID = (
    "this is the script\nTrue 4 ['word'] 8\nOwn(3) True rank 0: __mp_main__.Own: 3\n['0', '1']\n"
)
UNGUARDED = """
import os, sys
sys.modules["cloudpickle"] = None
import spawnlaunch
def own(): return os.environ["RANK"]
def start():
    spawnlaunch.launch(own, quiet=True)
{how}
"""
NOTES = sys.version_info >= (3, 11)  # an exception may have them
SLEEPING = """
import sys, spawnlaunch
from tests.calling.functions import sleeping
spawnlaunch.launch(sleeping, sys.argv[-1], nproc=2, prefix="never", quiet=True)
"""


def script(directory: Path, text: str) -> str:
    (directory / "script.py").write_text(text)
    return str(directory / "script.py")


def test_a_script_without_a_guard_runs_once_and_its_own_functions_and_modules_are_sent(
    tmp_path: Path,
) -> None:
    pytest.importorskip("cloudpickle")
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "mine.py").write_text("def double(x): return 2 * x\n")
    path = script(tmp_path, POINTS)
    done = run(sys.executable, path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "this is the script\n[10, 11] True\n")
    shown = [f'File "{path}", line {n}, in ' for n in (14, 13)]
    assert f"{shown[0]}own\n    inner()\n" in done.stderr
    assert f"{shown[1]}inner\n    def inner(): raise" in done.stderr


@pytest.mark.parametrize("words", mostly_full([["script.py"], ["-m", "script"]]))
def test_without_cloudpickle_ranks_run_the_script_under_its_guard(
    words: list[str], tmp_path: Path
) -> None:
    script(tmp_path, WITHOUT)
    done = run(sys.executable, *words, "word", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, WITHOUT_SAID, "")


def test_without_cloudpickle_a_missing_guard_is_told(tmp_path: Path) -> None:
    done = run(sys.executable, script(tmp_path, UNGUARDED.format(how="start()")))
    assert done.returncode == 1
    said = 'which calls launch; write that call below if __name__ == "__main__": or run pip'
    assert said in done.stderr


def test_without_cloudpickle_a_function_that_is_in_no_file_needs_it(tmp_path: Path) -> None:
    code = UNGUARDED.format(how="start()")
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    assert "it is part of a notebook" in done.stderr.splitlines()[-1]


def test_in_a_rank_of_another_launch_it_starts_a_world_of_its_own(tmp_path: Path) -> None:
    text = (
        "import spawnlaunch\n"
        "print(spawnlaunch.current_world()[:2], flush=True)\n"
        "print([w[:2] for w in spawnlaunch.launch(spawnlaunch.current_world, nproc=2)])\n"
    )
    words = ("-m", "spawnlaunch", "--quiet", "--prefix=never", "--nproc=1", script(tmp_path, text))
    done = run(sys.executable, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(0, 1)\n[(0, 2), (1, 2)]\n"


def test_in_a_shell_of_a_job_it_says_the_line_of_the_script_and_what_to_call(
    tmp_path: Path,
) -> None:
    text = (
        "import os, spawnlaunch, sys\n"
        "alone = {'standalone': True} if sys.argv[1:] else {}\n"
        "print(spawnlaunch.launch(os.getenv, 'RANK', nproc=2, quiet=True, **alone))\n"
    )
    words = (sys.executable, script(tmp_path, text))
    environ = clean_environ(**SHELL_OF_TWO_NODES)
    done = run(*words, environ=environ)
    line = done.stderr.splitlines()[-1]
    assert "run srun --nodes=2 --ntasks=2 --ntasks-per-node=1 python SCRIPT with launch(" in line
    assert line.endswith("python SCRIPT with launch(..., standalone=True, nproc='2', quiet=True)")
    assert run(*words, "alone", environ=environ).stdout == "['0', '1']\n"


@pytest.mark.parametrize(
    "signum", mostly_full([signal.SIGINT, signal.SIGKILL, signal.SIGTERM], at_once=2)
)
def test_nothing_outlives_a_caller_that_is_interrupted_or_killed(
    signum: int, tmp_path: Path
) -> None:
    """Not the directory either: `launched` looks."""
    command = (sys.executable, script(tmp_path, SLEEPING))
    with launched(tmp_path, directory=tmp_path, command=command) as launch:
        launch.read_until(2)
        launch.send(signum)
        assert launch.status() == 128 + signum
        assert launch.all_gone()
        until(lambda: not list((tmp_path / "tmp").glob("*")), "its directory is removed")
    if signum == signal.SIGINT:
        error, *notes = launch.stderr.splitlines()[-2 if NOTES else -1 :]
        assert error == "KeyboardInterrupt"
        assert all("SIGINT" in note for note in notes)
        assert sorted(path.name for path in tmp_path.glob("told *")) == ["told 0", "told 1"]


def test_the_package_imports_nothing_until_it_is_asked() -> None:
    code = (
        "import sys; before = set(sys.modules); import spawnlaunch\n"
        "assert set(sys.modules) - before == {'spawnlaunch'}, set(sys.modules) - before\n"
        "assert callable(spawnlaunch.launch)\n"
        "try: spawnlaunch.lunch\n"
        "except AttributeError as error: print(error)\n"
    )
    done = run(sys.executable, "-c", code)
    assert (done.stdout, done.stderr) == ("module 'spawnlaunch' has no attribute 'lunch'\n", "")
