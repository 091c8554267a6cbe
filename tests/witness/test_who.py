"""Who answers: the worker itself, to its own user, and nobody that it starts."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import spawnlaunch
from spawnlaunch import witness
from spawnlaunch.hang import asked
from tests.support.launching import LAUNCHER, SLURM_TASK, clean_environ, run, start
from tests.support.matrix import mostly_full
from tests.support.processes import until
from tests.support.required import require_root
from tests.support.watching import Launch, launched
from tests.support.witnessed import needs_line
from tests.witness.asking import IDLE, answer_of, begin_of, is_at, listens, place_of, worker

pytestmark = needs_line
NOBODY = 65534
SAYS_WHO = "os.write(1, b'ready %d\\n' % os.getpid())"

CHILD = "import os, sys, torch; print(os.getpid(), flush=True); sys.stdin.read()"


def test_a_worker_says_where_it_is(tmp_path: Path):
    with worker(tmp_path) as one:
        assert one.line() == "ready"
        is_at(one.pid, "<module> (script.py:3)")
        told = answer_of(one.pid, seconds=0.1)
        assert {look.place for look in told.samples} == {"script.py:3"}
        assert not told.record.calls
        assert one.ends() == (0, "")


def test_before_it_imports_torch_nobody_is_there(tmp_path: Path):
    """To look whether there is a torch, as many libraries do, is no import."""
    looks = "import importlib.util, pkgutil, sys\nimportlib.util.find_spec('torch')\n"
    looks += "for finder in sys.meta_path: finder.find_spec('torch', None)\n"
    looks += "pkgutil.find_loader('torch')\n" if sys.version_info < (3, 12) else ""
    script = looks + "print('ready', flush=True)\nsys.stdin.readline()\n" + IDLE
    with worker(tmp_path, script) as one:
        one.line()
        assert not listens(one.pid)
        one.tell()
        one.line()
        assert listens(one.pid)


@pytest.mark.parametrize(
    "begin",
    [
        f"import subprocess\nsubprocess.Popen([sys.executable, '-c', {CHILD!r}])",
        f"import torch\nif os.fork() == 0:\n    exec({CHILD!r})",
        f"if os.fork() == 0:\n    exec({CHILD!r})",
        "import torch\nif os.fork() == 0 and os.fork() == 0:\n    exec(CHILD)",
        "import multiprocessing\nif __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=exec, args=[CHILD])\n"
        "    child.start()\nelse:\n    sys.stdin = open(0)",
    ],
    ids=["subprocess", "fork", "fork before torch", "fork of a fork", "spawn"],
)
def test_what_a_worker_starts_does_not_answer(begin: str, tmp_path: Path):
    script = f"import os, sys\nCHILD = {CHILD!r}\n{begin}\nif __name__ == '__main__':\n"
    script += "    import torch\n    sys.stdin.read()\n"
    with worker(tmp_path, script) as one:
        child = int(one.line())
        answer_of(one.pid)
        assert not listens(child)
        assert one.ends() == (0, "")


def test_a_python_that_a_worker_becomes_answers_again(tmp_path: Path):
    again = "import os, sys, torch\nif len(sys.argv) == 1:\n"
    again += "    os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])\n" + IDLE
    with worker(tmp_path, again) as one:
        one.line()
        is_at(one.pid, "<module> (script.py:6)")
        assert one.ends() == (0, "")


@pytest.mark.full
def test_a_program_that_is_no_worker_is_as_it_was():
    """Whether its variable is not set, or that of the worker above it."""
    show = "import sys, threading, torch.version, json, os; print(json.dumps(["
    show += "[m for m in sys.modules if m.split('.')[0] == 'spawnlaunch'], "
    show += "[type(finder).__module__ for finder in sys.meta_path], "
    show += "[thread.name for thread in threading.enumerate()]]))"
    for variables in ({}, {witness.WITNESS: str(os.getpid())}):
        environ = {k: v for k, v in clean_environ(**variables).items() if k != "PYTHONPATH"}
        done = run(sys.executable, "-c", show, environ=environ)
        modules, finders, threads = json.loads(done.stdout)
        assert (modules, threads, done.stderr) == ([], ["MainThread"], "")
        assert not [name for name in finders if "spawnlaunch" in name]


def test_a_worker_imports_no_more_than_the_witness(tmp_path: Path):
    with worker(tmp_path, "import sys\nprint(*sys.modules)\n") as one:
        taken = one.line().split()
    bare = run(sys.executable, tmp_path / "script.py").stdout.split()
    assert {*taken}.difference(bare) == {"spawnlaunch", "spawnlaunch.witness"}


ASKS = f"""
import os, socket, sys
os.setgid({NOBODY})
os.setuid({NOBODY})
client = socket.socket(socket.AF_UNIX)
client.connect(sys.stdin.read())
try:
    client.send(b'{{"seconds": 0, "every": 1}}\\n')
    print(len(client.recv(1 << 16)))
except OSError:
    print(0)
"""


def test_another_user_is_not_heard(tmp_path: Path):
    require_root()
    with worker(tmp_path) as one:
        answer_of(one.pid)
        where = witness.address(one.pid, begin_of(one.pid))
        done = run(sys.executable, "-S", "-c", ASKS, input=where)
        assert (done.stdout, done.stderr) == ("0\n", "")
        answer_of(one.pid)
        assert one.ends() == (0, "")


LISTENS = """
import os, socket, sys
where = sys.stdin.readline().strip()
os.setuid(int(sys.stdin.readline()))
server = socket.socket(socket.AF_UNIX)
server.bind("\\0" + where)
server.listen()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("user", [os.getuid(), NOBODY])
def test_who_listens_in_place_of_the_worker_is_not_asked(user: int, tmp_path: Path):
    """A process, or another user: it could tell us what it likes."""
    if user == NOBODY:
        require_root()
    with worker(tmp_path, LISTENS) as one:
        pid = one.pid if user == NOBODY else os.getpid()
        one.tell(witness.address(pid, begin_of(pid))[1:])
        one.tell(str(user))
        assert one.line() == "ready"
        with pytest.raises(PermissionError):
            asked.Question(pid, begin_of(pid))


# As launches start workers


def script_in(directory: Path) -> Path:
    (directory / "torch.py").touch()
    file = directory / "script.py"
    file.write_text(f"import os, time, torch\n{SAYS_WHO}\ntime.sleep(3600)\n")
    return file


def who_is_ready(one: Launch, count: int) -> list[int]:
    """The workers' numbers; beside them may be the image that they were forked from."""
    one.read_until(count)
    return [int(pid) for pid in re.findall(rb"ready (\d+)", one.output)]


@pytest.mark.parametrize(
    "flags", mostly_full(["--preload json", "", f"--no-python {sys.executable}"])
)
def test_workers_of_a_launch_answer(flags: str, tmp_path: Path):
    words = ("--nproc", 2, *flags.split(), script_in(tmp_path))
    with launched(*words, directory=tmp_path) as one:
        for pid in who_is_ready(one, 2):
            is_at(pid, "<module> (script.py:3)")


@pytest.mark.full
def test_a_worker_that_has_torch_from_its_preloading_answers(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(f"import os, time\n{SAYS_WHO}\ntime.sleep(3600)\n")
    with launched("--nproc", 1, "--preload", "torch", script, directory=tmp_path) as one:
        is_at(*who_is_ready(one, 1), "<module> (script.py:3)")


def test_a_task_answers(tmp_path: Path):
    """The launcher becomes the worker."""
    environ = clean_environ(**SLURM_TASK)
    with start(*LAUNCHER, script_in(tmp_path), environ=environ, stderr=subprocess.PIPE) as task:
        assert task.stdout.readline() == f"ready {task.pid}\n"
        is_at(task.pid, "<module> (script.py:3)")
        task.kill()


def _answers() -> bool:
    import torch  # noqa: F401

    pid = os.getpid()
    until(lambda: listens(pid), "its own thread listens")
    return place_of(answer_of(pid)) != ""


@pytest.mark.full
def test_a_function_that_is_launched_answers():
    assert spawnlaunch.launch(_answers, nproc=2) == [True, True]
