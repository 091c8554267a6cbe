"""--preload: the import is watched, and workers of the image are the guard's own."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.launching import FAMILY, LAUNCHER, ROOT, WORKERS, clean_environ, launch
from tests.support.matrix import mostly_full
from tests.support.processes import hold_by_a_debugger, until
from tests.support.watching import launched


def module(directory: Path, text: str) -> tuple[object, ...]:
    """The flags that preload a module of this text, and start two workers."""
    (directory / "slow_module.py").write_text(text)
    return ("--nproc", 2, "--grace", 0.5, "--preload", "slow_module")


def importing(directory: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{directory}:{ROOT}"}


SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(600)\n"


@pytest.mark.parametrize("signum", mostly_full([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
def test_a_signal_is_heard_while_modules_are_imported(signum: signal.Signals, tmp_path: Path):
    result = tmp_path / "result.json"
    words = (*module(tmp_path, SLOW), "--result", result, WORKERS / "sleep.py")
    with launched(*words, directory=tmp_path, environ=importing(tmp_path)) as one:
        one.read_until(1, "importing")
        one.send(signum)
        assert one.status() == 128 + signum
        assert f"{signum.name}: --preload slow_module was still being imported" in one.stderr
    assert json.loads(result.read_text())["signal"] == signum.name
    assert json.loads(result.read_text())["ranks"] == []


def test_the_time_of_a_launch_is_over_while_modules_are_imported(tmp_path: Path):
    words = (*module(tmp_path, SLOW), "--timeout", 0.5, WORKERS / "sleep.py")
    with launched(*words, directory=tmp_path, environ=importing(tmp_path)) as one:
        assert one.status() == 124
        assert "is over (--timeout): --preload slow_module" in one.stderr


@pytest.mark.parametrize("victim", mostly_full(["image", "launcher", "guard"]))
def test_whoever_is_killed_while_modules_are_imported_nothing_is_left(victim: str, tmp_path: Path):
    child = "import os\nos.fork() or (os.setsid(), __import__('time').sleep(600))\n"
    words = (*module(tmp_path, child + SLOW), WORKERS / "sleep.py")
    with launched(*words, directory=tmp_path, environ=importing(tmp_path)) as one:
        one.read_until(1, "importing")
        until(lambda: bool(one.workers), "there is an image, the guard's first child")
        pids = {"launcher": one.pid, "guard": one.guard, "image": one.workers[0]}
        one.send(signal.SIGKILL, pids[victim])
        assert one.status() == 137
        if victim == "image":
            assert "that imports it died of SIGKILL" in one.stderr


@pytest.mark.parametrize(
    ("text", "status", "said"),
    mostly_full(
        [
            ("raise ValueError('mine')", 1, "ValueError: mine"),
            ("import no_such_thing", 2, "No module named 'no_such_thing'"),
            ("import sys; sys.exit(7)", 7, "exited with status 7"),
            ("import sys; sys.exit(0)", 1, "exited with status 0"),
            ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139, "died of SIGSEGV"),
            ("import os, time; os.closerange(3, 99); time.sleep(600)", 137, "died of SIGKILL"),
        ],
        3,
    ),
)
def test_an_import_that_fails_ends_the_launch(text: str, status: int, said: str, tmp_path: Path):
    words = module(tmp_path, f"def inner():\n    {text}\ninner()\n")
    environ = clean_environ(**importing(tmp_path))
    done = launch("--quiet", *words, WORKERS / "report.py", environ=environ)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "spawnlaunch: " in done.stderr.splitlines()[-1]
    assert "internal error" not in done.stderr
    if "Error" in said or "No module" in said:
        frames = [line for line in done.stderr.splitlines() if line.startswith("  File ")]
        assert [frame.split('"')[1] for frame in frames] == [str(tmp_path / "slow_module.py")] * 2


@pytest.mark.parametrize("victim", mostly_full(["guard", "launcher"]))
def test_workers_of_an_image_die_with_launcher_and_guard(victim: str, tmp_path: Path):
    words = ("--nproc", 3, "--preload", "json", FAMILY, "plain", "session")
    with launched(*words, directory=tmp_path) as one:
        one.read_until(3)
        assert len(one.workers) == 3 + 1  # and the image
        one.send(signal.SIGKILL, one.guard if victim == "guard" else one.pid)
        assert one.status() == 137


SOON = (
    "import sys\n"
    "from spawnlaunch.run import preload\n"
    "preload.ANSWER_S = 4.0\n"
    "from spawnlaunch.__main__ import launch\n"
    "sys.exit(launch())\n"
)


@pytest.mark.parametrize("image", ["was killed", "is silent", "dies as it is asked"])
def test_an_image_that_gives_no_workers_for_a_restart_is_named(image: str, tmp_path: Path):
    """One that is silent for long is killed: nothing that it may fork comes to another attempt."""
    words = ("--nproc", 2, "--preload", "json", "--max-restarts", 3, "--grace", 0.5)
    command = (sys.executable, "-c", SOON, "--prefix=never") if image == "is silent" else LAUNCHER
    with launched(*words, FAMILY, "--", "stay", directory=tmp_path, command=command) as one:
        one.read_until(2)
        asked, worker = one.workers[0], one.workers[1]
        if image == "was killed":
            one.send(signal.SIGKILL, asked)
        else:
            let_go = hold_by_a_debugger(asked)
        one.send(signal.SIGKILL, worker)
        if image == "dies as it is asked":
            until(lambda: "restart 1 of 3" in one.stderr, "it is asked for others")
            time.sleep(0.3)
            one.send(signal.SIGKILL, asked)
            let_go()
        said = f"--preload json (pid {asked}) does not answer"
        until(lambda: said in one.stderr, "it is said")
        if image == "is silent":
            let_go()
        assert one.status() == os.EX_OSERR
