"""--preload: the import is watched, and workers of the image are the guard's own."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.launching import FAMILY, ROOT, WORKERS, clean_environ, launch
from tests.support.processes import state, until
from tests.support.watching import Launch, launched


def module(directory: Path, text: str) -> tuple[object, ...]:
    """The flags that preload a module of this text, and start two workers."""
    (directory / "slow_module.py").write_text(text)
    return ("--nproc", 2, "--grace", 0.5, "--preload", "slow_module")


def importing(directory: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{directory}:{ROOT}"}


SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(600)\n"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
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


def image(one: Launch) -> int:
    """The pid of the image, the guard's first child."""
    until(lambda: bool(one.workers), "there is an image")
    return one.workers[0]


@pytest.mark.parametrize("victim", ["launcher", "guard", "image"])
def test_whoever_is_killed_while_modules_are_imported_nothing_is_left(victim: str, tmp_path: Path):
    child = "import os\nos.fork() or (os.setsid(), __import__('time').sleep(600))\n"
    words = (*module(tmp_path, child + SLOW), WORKERS / "sleep.py")
    with launched(*words, directory=tmp_path, environ=importing(tmp_path)) as one:
        one.read_until(1, "importing")
        find = {
            "launcher": lambda: one.pid,
            "guard": lambda: one.guard,
            "image": lambda: image(one),
        }
        one.send(signal.SIGKILL, find[victim]())
        assert one.status() == 137
        assert one.all_gone()
        if victim == "image":
            assert "that imports it died of SIGKILL" in one.stderr


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("raise ValueError('mine')", 1, "ValueError: mine"),
        ("import no_such_thing", 2, "No module named 'no_such_thing'"),
        ("import sys; sys.exit(7)", 7, "exited with status 7"),
        ("import sys; sys.exit(0)", 1, "exited with status 0"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139, "died of SIGSEGV"),
        ("import os, time; os.closerange(3, 99); time.sleep(600)", 137, "died of SIGKILL"),
    ],
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


def test_workers_of_an_image_are_children_of_the_guard_and_die_with_it(tmp_path: Path):
    words = ("--nproc", 3, "--preload", "json", FAMILY, "plain", "session")
    with launched(*words, directory=tmp_path) as one:
        one.read_until(3)
        assert len(one.workers) == 3 + 1  # and the image
        one.send(signal.SIGKILL, one.guard)
        assert one.status() == 137
        assert one.all_gone()


def test_an_image_that_was_killed_is_named_when_workers_are_to_start_anew(tmp_path: Path):
    words = ("--nproc", 2, "--preload", "json", "--max-restarts", 3, "--grace", 0.5)
    with launched(*words, FAMILY, "--", "stay", directory=tmp_path) as one:
        one.read_until(2)
        killed, worker = one.workers[0], one.workers[1]
        one.send(signal.SIGKILL, killed)
        one.send(signal.SIGKILL, worker)
        assert one.status() == os.EX_OSERR
        assert f"--preload json (pid {killed}) does not answer" in one.stderr


def test_an_image_that_dies_while_it_is_asked_is_named(tmp_path: Path):
    words = ("--nproc", 2, "--preload", "json", "--max-restarts", 3, "--grace", 0.5)
    with launched(*words, "--timeout", 300, FAMILY, "--", "stay", directory=tmp_path) as one:
        one.read_until(2)
        asked, worker = one.workers[0], one.workers[1]
        one.send(signal.SIGSTOP, asked)
        until(lambda: state(asked) == "T", "the image is stopped")
        one.send(signal.SIGKILL, worker)
        until(lambda: "restart 1 of 3" in one.stderr, "it is asked for others")
        time.sleep(0.3)
        one.send(signal.SIGKILL, asked)
        assert one.status() == os.EX_OSERR
        assert f"--preload json (pid {asked}) does not answer" in one.stderr


SOON = (
    "import sys\n"
    "from spawnlaunch.run import preload\n"
    "preload.ANSWER_S = 4.0\n"
    "from spawnlaunch.__main__ import main\n"
    "sys.exit(main())\n"
)


def test_an_image_that_is_silent_for_long_is_killed(tmp_path: Path):
    """So that nothing that it may still fork comes to a later attempt."""
    words = ("--nproc", 2, "--preload", "json", "--max-restarts", 3, "--grace", 0.5)
    command = (sys.executable, "-c", SOON, "--no-prefix")
    with launched(*words, FAMILY, "--", "stay", directory=tmp_path, command=command) as one:
        one.read_until(2)
        asked, worker = one.workers[0], one.workers[1]
        one.send(signal.SIGSTOP, asked)
        one.send(signal.SIGKILL, worker)
        until(lambda: f"(pid {asked}) does not answer" in one.stderr, "it is said")
        assert state(asked) != "T"
        assert one.status() == os.EX_OSERR


def test_a_module_whose_fork_handler_ends_the_fork_is_no_fault_of_ours(tmp_path: Path):
    """The handler of a library of the user's runs in whatever is forked of the image."""
    text = "import os\nos.register_at_fork(after_in_child=lambda: os._exit(3))\n"
    environ = clean_environ(**importing(tmp_path))
    done = launch("--quiet", *module(tmp_path, text), WORKERS / "report.py", environ=environ)
    assert done.returncode == os.EX_OSERR
    assert "does not answer" in done.stderr
    assert "internal error" not in done.stderr


DRAWS = """
import json, multiprocessing, os, random, sys, tempfile, uuid
import numpy, torch
from torch.utils.data import DataLoader
drawn = {
    "random": random.random(), "numpy": numpy.random.rand(), "torch": torch.rand(1).item(),
    "shuffle": torch.randperm(1000).tolist(),
    "dropout": torch.dropout(torch.ones(99), 0.5, True).tolist(),
    "loader": [int(i) for i in DataLoader(range(1000), shuffle=True, batch_size=1)],
    "key": multiprocessing.current_process().authkey.hex(), "uuid": str(uuid.uuid4()),
    "name": tempfile.mktemp(),
}
keys = getattr(sys.modules.get("seeding"), "KEYS", drawn)
drawn = {key: drawn[key] for key in keys}
os.write(1, json.dumps(drawn).encode() + b"\\n")
sys.exit(3 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and "again" in sys.argv else 0)
"""


def drawn(tmp_path: Path, *words: object) -> list[dict[str, object]]:
    script = tmp_path / "draws.py"
    script.write_text(DRAWS)
    environ = clean_environ(**importing(tmp_path))
    done = launch("--quiet", *words, script, "again", environ=environ)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.full
def test_each_worker_of_each_attempt_draws_its_own_random_numbers(tmp_path: Path):
    (tmp_path / "drawing.py").write_text(
        "import random, numpy, torch, uuid, multiprocessing, tempfile\n"
        "random.random(), numpy.random.rand(700), torch.rand(1), tempfile.mktemp()\n"
    )
    found = drawn(tmp_path, "--nproc", 3, "--max-restarts", 1, "--preload", "torch,numpy,drawing")
    assert len(found) >= 4  # three, and those of the first attempt that were not stopped earlier
    for key in found[0]:
        values = {json.dumps(each[key]) for each in found}
        assert len(values) == len(found), key


@pytest.mark.full
def test_what_a_module_has_seeded_itself_is_what_it_would_be_in_a_fresh_process(tmp_path: Path):
    (tmp_path / "seeding.py").write_text(
        "import random, numpy, torch\n"
        "random.seed(0), numpy.random.seed(0), torch.manual_seed(0), random.random()\n"
        "KEYS = ('random', 'numpy', 'torch', 'shuffle', 'dropout', 'loader')\n"
    )
    script = tmp_path / "draws.py"
    script.write_text("import seeding\n" + DRAWS)
    environ = clean_environ(**importing(tmp_path))
    plain, forked = (
        launch("--quiet", "--nproc", 2, *preload, script, environ=environ).stdout.splitlines()
        for preload in ((), ("--preload", "seeding"))
    )
    assert len(plain) == len(forked) == 2
    assert len({*plain, *forked}) == 1
