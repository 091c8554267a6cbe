"""Workers that cannot be ended: of another user, or held by a tracer that does not wait for them.

The launch comes to an end all the same, and says which process is left and why; and also where it
is the reader who is another user, and reads nothing.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.multinode.launchers import Launchers
from tests.support.launching import LAUNCHER, clean_environ
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S
from tests.support.processes import state, until
from tests.support.watching import Launch, launched

NOBODY = 65534
BECOME = "import os, sys, time; os.setuid({}); print('ready', flush=True); time.sleep(600)"
DROPPED = ("setpriv", "--bounding-set", "-kill,-sys_ptrace", "--inh-caps", "-all")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that every user can enter."""
    directory = Path(tempfile.mkdtemp(prefix="open-"))
    for each in (directory, directory / "tmp"):
        each.mkdir(exist_ok=True)
        each.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def python_of_all() -> str:
    """A Python that every user can run, and that has what the launcher needs."""
    for python in (sys.executable, "/usr/bin/python3"):
        with suppress(OSError):
            done = subprocess.run(
                [python, "-c", "import spawnlaunch.entry"],
                preexec_fn=become_nobody, env=clean_environ(), check=False, capture_output=True,
            )  # fmt: skip
            if done.returncode == 0:
                return python
    pytest.skip("no Python here is for every user")


def become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


@contextmanager
def killed_at_the_end(launch: Launch) -> Iterator[list[int]]:
    """The workers, which the test kills in the launch's place."""
    workers = launch.workers
    try:
        yield workers
    finally:
        for pid in workers:
            if state(pid):
                os.kill(pid, signal.SIGKILL)


@as_root
@pytest.mark.parametrize("nproc", mostly_full([2, 1]))
def test_workers_that_became_another_user_are_named_and_left(nproc: int, tmp_path: Path):
    words = ("--nproc", nproc, "--grace", 0.5, "--no-python", "python3", "-c")
    with launched(
        *words, BECOME.format(NOBODY), directory=tmp_path, command=(*DROPPED, *LAUNCHER)
    ) as one:
        one.read_until(nproc)
        with killed_at_the_end(one) as workers:
            assert len(workers) == nproc
            one.send(signal.SIGUSR1)  # forwarded to nobody who does not catch it
            if nproc > 1:  # it has no more time than others, though nobody can continue it
                one.send(signal.SIGSTOP, workers[0])
                until(lambda: state(workers[0]) == "T", "it is stopped")
            one.send(signal.SIGTERM)
            assert one.status() == 128 + signal.SIGTERM, one.stderr
            for pid in workers:
                assert f"pid {pid}" in one.stderr
            assert one.stderr.count("runs as nobody, whom root") == nproc
            assert "internal error" not in one.stderr
            assert [state(pid) for pid in workers[-1:]] == ["S"]


LEAVE = """
import os, sys, time
here, there = os.pipe()
if not os.fork():
    os.setsid()
    os.setuid(int(sys.argv[2]))
    os.closerange(0, 3)
    os.write(there, b"left")
    time.sleep(600)
os.read(here, 4)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.full
@as_root
@pytest.mark.parametrize("code", [0, 7])
def test_a_node_of_several_is_not_lost_because_it_has_left_what_it_cannot_kill(
    code: int, tmp_path: Path
):
    both = Launchers(tmp_path)
    for name, last in (("a", ("true",)), ("b", (sys.executable, "-c", LEAVE, code, NOBODY))):
        both.start(
            name, "--nnodes=2", "--grace=0.2", "--no-python", *last, command=(*DROPPED, *LAUNCHER)
        )
    assert both.statuses() == {"a": code, "b": code}
    assert "was lost" not in both.said("a")
    for pid in set(re.findall(r"could not kill pid (\d+)", both.said("b"))):
        os.kill(int(pid), signal.SIGKILL)


# Processes that /proc hides from their own user (hidepid=2 in proc(5)): they let nobody trace them
# (PR_SET_DUMPABLE is 4).
HIDDEN = """
import ctypes, os, sys, time
reader, writer = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
        os.fork()
        os.write(writer, b"x")
        time.sleep(600)
for _ in range(4):
    os.read(reader, 1)
os.write(1, b"ready\\n")
time.sleep(float(sys.argv[1]))
"""
HIDEPID = (
    "unshare", "--mount", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh",
    "setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups",
)  # fmt: skip


@as_root
@pytest.mark.full
@pytest.mark.parametrize("killed", ["nobody", "guard"])
def test_processes_that_proc_hides_do_not_stay(killed: str, open_path: Path, python_of_all: str):
    script = open_path / "hidden.py"
    script.write_text(HIDDEN)
    command = (*HIDEPID, python_of_all, *LAUNCHER[1:])
    seconds = 0 if killed == "nobody" else 600
    flags = ("--nproc", 2, "--grace", 2)
    with launched(*flags, script, seconds, directory=open_path, command=command) as launch:
        launch.read_until(2)
        if killed == "guard":
            launch.send(signal.SIGKILL, launch.guard)
        assert launch.status() == (0 if killed == "nobody" else 128 + signal.SIGKILL)
        assert launch.all_gone()


FLOODS = """
import os, sys, time
os.set_blocking(1, False)
tries = 0
while tries < 20:
    try:
        os.write(1, b"x" * 99 + b"\\n")
        tries = 0
    except BlockingIOError:
        tries += 1
        time.sleep(0.05)
open(sys.argv[1] + os.environ["RANK"], "w").close()
time.sleep(600)
"""


@as_root
@pytest.mark.full
@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_launch_ends_though_another_users_reader_pauses(
    kind: str, open_path: Path, python_of_all: str
):
    script = open_path / "floods.py"
    script.write_text(FLOODS)
    terminal, its_other_end = os.openpty()
    to = f">{os.ttyname(its_other_end)}" if kind == "terminal" else ""
    become = shlex.join(HIDEPID[HIDEPID.index("setpriv") :])
    command = ("sh", "-c", f'exec {become} "$@" {to}', "sh", python_of_all, *LAUNCHER[1:])
    words = ("--nproc", 2, "--grace", 1, script, open_path / "full-")
    with launched(*words, directory=open_path, command=command) as launch:
        until(lambda: len([*open_path.glob("full-*")]) == 2, "nobody can write more")
        launch.send(signal.SIGTERM)
        assert launch.launcher.wait(PATIENCE_S) == 128 + signal.SIGTERM
        assert "our stdout was not read" in launch.stderr
    os.close(terminal)
    os.close(its_other_end)


SLEEPS = """
import os, threading, time
for _ in range({threads} - 1):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
time.sleep({after_s})
os._exit(7)
"""

# A tracer that never waits: PTRACE_SEIZE (0x4206) for all threads, with or without a stop at their
# ends (PTRACE_O_TRACEEXIT, which strace asks for; ptrace(2)).
TRACER = """
import ctypes, os, sys, time
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
for thread in os.listdir(f"/proc/{sys.argv[1]}/task"):
    assert ptrace(0x4206, int(thread), ctypes.c_void_p(), ctypes.c_void_p(int(sys.argv[2]))) == 0
print("traces", flush=True)
time.sleep(600)
"""
NO_STOP, STOP_AT_EXIT = 0, 0x40


@contextmanager
def traced(pid: int, options: int) -> Iterator[int]:
    """The pid of a tracer of a process."""
    command = [sys.executable, "-c", TRACER, str(pid), str(options)]
    tracer = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert tracer.stdout
    try:
        if tracer.stdout.readline() != b"traces\n":
            pytest.skip("this process may not trace others")
        yield tracer.pid
    finally:
        tracer.kill()
        tracer.wait()
        tracer.stdout.close()


@pytest.mark.parametrize(
    ("threads", "options"), mostly_full([(1, NO_STOP), (3, NO_STOP), (1, STOP_AT_EXIT)])
)
def test_a_worker_held_by_its_tracer_does_not_hold_the_launch(threads, options, tmp_path: Path):
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPS.format(threads=threads, after_s=600))
    with launched("--nproc", 2, "--grace", 0.5, script, directory=tmp_path) as one:
        one.read_until(2)
        held = one.workers[1]
        with traced(held, options):
            one.send(signal.SIGTERM)
            assert one.status() == 128 + signal.SIGTERM, one.stderr


def test_how_a_worker_ended_is_known_though_its_tracer_does_not_wait(tmp_path: Path):
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPS.format(threads=1, after_s=2))
    with launched("--nproc", 1, script, directory=tmp_path) as one:
        one.read_until(1)
        with traced(*one.workers, NO_STOP):
            assert one.status() == 7, one.stderr
            assert "exited with status 7" in one.stderr
