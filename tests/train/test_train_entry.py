"""Started by path, the package is the one beside the started file, whatever a user calls train."""

from pathlib import Path

import pytest

from tests.train.ranks import ENTRY, SMALL, run

pytestmark = pytest.mark.full

ONE_STEP = (*SMALL, "--context", "16", "--steps", "1", "--batch-size", "2")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A directory with a user's own package train, and modules named as ours are."""
    for name in ("task.py", "data.py", "run.py", "config.py", "checkpoint.py", "train/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('the user module was taken')\n")
    return tmp_path


def test_modules_of_the_user_are_not_taken_for_ours(hostile: Path) -> None:
    for path in (f":{hostile}", f".:{hostile}"):
        (ended,) = run(0, *ONE_STEP, cwd=hostile, cold=True, PYTHONPATH=path)
        assert ended.status == 0, ended


def test_our_modules_do_not_pass_for_top_level_ones(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import importlib.util, runpy, sys\n"
        f"sys.path.insert(0, {str(ENTRY.parent)!r})\n"
        f"runpy.run_path({str(ENTRY)!r}, run_name='elsewhere')\n"
        "print(importlib.util.find_spec('report'), sys.modules['spawnlaunch.train'].__file__)\n"
    )
    (ended,) = run(0, cwd=tmp_path, program=program)
    assert ended.out == f"None {ENTRY.with_name('__init__.py')}\n"


def test_a_spawned_child_finds_the_same_package(hostile: Path) -> None:
    program = hostile / "program.py"
    program.write_text(
        "import multiprocessing, sys\n"
        "if __name__ == '__main__':\n"
        # A child of multiprocessing imports the main file of its parent again, by path.
        f"    sys.modules['__main__'].__file__ = {str(ENTRY)!r}\n"
        "    code = 'import spawnlaunch.train.config as c; print(c.__file__)'\n"
        "    child = multiprocessing.get_context('spawn').Process(target=exec, args=(code,))\n"
        "    child.start()\n"
        "    child.join()\n"
        "    sys.exit(child.exitcode)\n"
    )
    (ended,) = run(0, cwd=hostile, program=program, PYTHONPATH=str(hostile))
    assert (ended.status, ended.out) == (0, f"{ENTRY.with_name('config.py')}\n"), ended


@pytest.mark.parametrize("how", ["own.py:Own", "own:Own"])
def test_a_tasks_own_modules_come_before_what_is_installed(tmp_path: Path, how: str) -> None:
    """As a script's do: before a checkout's package train, too. But behind Python's own."""
    for name in ("tqdm", "train", "sched"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('of the task')")
    (tmp_path / "train" / "__init__.py").write_text("MINE = True")
    (tmp_path / "own.py").write_text(
        "import sched, train\n"
        "class Own:\n"
        "    def model(self): ...\n"
        "    def dataset(self, split): ...\n"
        "    def loss(self, model, batch): return train.MINE, sched.scheduler\n"
    )
    program = tmp_path / "elsewhere" / "program.py"
    program.parent.mkdir()
    program.write_text(
        "import os, sys\n"
        "at = max(i for i, one in enumerate(sys.path) if one.endswith('site-packages'))\n"
        f"sys.path.insert(at + 1, {str(ENTRY.parents[2])!r})\n"  # as an editable install has it
        "import spawnlaunch.train\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "from spawnlaunch.train.commandline import task_class\n"
        "before = len(sys.path)\n"
        f"print(task_class({how!r})().loss(None, None)[0], task_class({how!r}).__name__)\n"
        "try:\n"
        "    import tqdm\n"
        "except ImportError as error:\n"
        "    print(error, len(sys.path) - before)\n"
    )
    (ended,) = run(0, cwd=tmp_path, program=program)
    assert ended.out == "True Own\nof the task 1\n", ended
