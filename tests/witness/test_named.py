"""A task that fails names itself, for no launcher is there to do it."""

import os
import re
from pathlib import Path

import pytest

from tests.support.launching import SLURM_TASK, clean_environ, launch
from tests.support.witnessed import needs_line

pytestmark = needs_line
WHEN = r"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}}"
NAMED = r"spawnlaunch: rank {} on {} \(pid \d+\) failed at " + WHEN
HOST = re.escape(os.uname().nodename)


def task(tmp_path: Path, script: str, *flags: object, **environ: str) -> str:
    """What a task of Slurm writes on stderr that ends with status 1."""
    (tmp_path / "script.py").write_text(script)
    told = clean_environ(**SLURM_TASK, **environ)
    done = launch("--quiet", *flags, tmp_path / "script.py", environ=told)
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_the_line_before_its_traceback_has_rank_host_and_time(tmp_path: Path) -> None:
    first, second, *_, last = task(tmp_path, "raise ValueError('no')").splitlines()
    assert re.fullmatch(NAMED.format(2, HOST), first)
    assert second == "Traceback (most recent call last):"
    assert last == "ValueError: no"


def test_a_module_that_is_missing_may_be_in_the_active_environment(tmp_path: Path) -> None:
    _, second, third, *_ = task(tmp_path, "import nowhere", VIRTUAL_ENV="/other").splitlines()
    assert "the active environment is another (VIRTUAL_ENV=/other)" in second
    assert third == "Traceback (most recent call last):"


@pytest.mark.parametrize(
    "script",
    [
        "import sys; sys.exit('no data')",
        "import os, sys; os.fork() or sys.exit(1); os.wait(); sys.exit(1)",
        "import sys; sys.stderr = None; raise ValueError",
    ],
    ids=["no traceback", "a fork", "no stderr"],
)
def test_what_has_no_traceback_has_no_line(script: str, tmp_path: Path) -> None:
    assert "failed at" not in task(tmp_path, script)


def test_a_child_of_a_task_that_fails_is_not_the_task(tmp_path: Path) -> None:
    script = "import os, sys\nif os.fork() == 0: raise ValueError\nos.wait()\nsys.exit(1)\n"
    said = task(tmp_path, script)
    assert "Traceback" in said
    assert "failed at" not in said


def test_a_hook_of_the_script_that_calls_the_one_before_shows_the_line(tmp_path: Path) -> None:
    """torch's does so, which puts the rank before each line."""
    script = (
        "import io, sys\nbefore = sys.excepthook\ndef hook(*error):\n"
        "    real, sys.stderr = sys.stderr, io.StringIO()\n    before(*error)\n"
        "    text, sys.stderr = sys.stderr.getvalue(), real\n    real.write('hooked ' + text)\n"
        "sys.excepthook = hook\nraise ValueError\n"
    )
    assert re.match("hooked " + NAMED.format(2, HOST), task(tmp_path, script))


def test_after_a_hook_of_the_script_that_does_not_the_line_comes_last(tmp_path: Path) -> None:
    """rich's is such a hook."""
    script = (
        "import sys\nsys.excepthook = lambda *error: print('hooked', file=sys.stderr)\n"
        "raise ValueError\n"
    )
    first, last = task(tmp_path, script).splitlines()
    assert first == "hooked"
    assert re.fullmatch(NAMED.format(2, HOST), last)


def test_under_a_launcher_the_launcher_says_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("raise ValueError('no')")
    done = launch("--nproc", 2, tmp_path / "script.py", environ=clean_environ())
    assert "failed first: rank" in done.stderr
    assert "failed at" not in done.stderr
