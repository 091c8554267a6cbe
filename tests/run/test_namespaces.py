"""Containers: PID namespaces whose /proc is another's, or is not there, and a launcher as PID 1."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launching import FAMILY, LAUNCHER, WORKERS
from tests.support.matrix import mostly_full
from tests.support.processes import children, until
from tests.support.watching import Launch, launched

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs root, to make a namespace"
)

INSIDE = ("unshare", "--pid", "--fork", "--kill-child")
WITHOUT_PROC = ("sh", "-c", 'umount -l /proc; exec "$@"', "sh")
KINDS = ("session", "daemon", "naked")
BLIND = "/proc does not show our PID namespace"
# A launcher that sees another namespace's /proc, in four ways.
UNSEEN = {
    "outer": INSIDE,
    "guard": ("unshare", "--pid"),  # the first child of the launcher is PID 1
    "none": ("unshare", "--mount", *WITHOUT_PROC),
    "none inside": (*INSIDE, "--mount", *WITHOUT_PROC),
}


@pytest.fixture
def parent_and_child() -> Iterator[tuple[int, int]]:
    """Two processes outside of the namespace."""
    with subprocess.Popen(["sh", "-c", "sleep 600 & wait"]) as parent:
        until(lambda: bool(children(parent.pid)), "it has a child")
        (child,) = children(parent.pid)
        yield parent.pid, child
        for pid in (child, parent.pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.full
def test_a_process_with_the_number_of_another_namespaces_is_not_killed(parent_and_child, tmp_path):
    """The guard has the number of a process outside, and a bystander that of its child."""
    parent, child = parent_and_child
    command = (*INSIDE, sys.executable, str(WORKERS / "alike.py"), str(child), str(parent))
    with launched(
        "--nproc", 2, FAMILY, "session", "daemon", "--", "0:exit", 3,
        directory=tmp_path, command=(*command, *LAUNCHER),
    ) as launch:  # fmt: skip
        assert launch.status() == 3
        assert b"the bystander lives" in launch.output
        assert "could not kill" not in launch.stderr


@pytest.mark.parametrize(
    ("how", "flags"),
    mostly_full([("outer", ("--preload", "json")), *((how, ()) for how in reversed(UNSEEN))]),
)
def test_without_a_proc_of_its_own_a_launch_leaves_nothing_either(how, flags, tmp_path: Path):
    words = (*flags, FAMILY, "stubborn", *KINDS, "--", "0:exit", 3)
    command = (*UNSEEN[how], *LAUNCHER)
    with launched("--nproc", 2, *words, directory=tmp_path, command=command) as launch:
        assert launch.status() == 3
        assert launch.stderr.count(BLIND) == 1


# PID 1 of a namespace starts that of another one below it, whose first child is to have the same
# number in both. Usage: TWICE NUMBER COMMAND...
TWICE = """
import os, subprocess, sys
def next_is(number):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(number - 1))
if os.environ.get("BELOW"):
    next_is(int(sys.argv[1]))
    os.write(1, b"below\\n")
    os.read(0, 1)
    sys.exit(subprocess.call(sys.argv[2:]))
command = ["unshare", "--pid", "--fork", sys.executable, *sys.argv]
pipe = subprocess.PIPE
below = subprocess.Popen(command, env={**os.environ, "BELOW": "1"}, stdin=pipe, stdout=pipe)
assert below.stdout.readline() == b"below\\n"
next_is(int(sys.argv[1]))
below.communicate(b"x")
sys.exit(below.returncode)
"""


@pytest.mark.full
def test_a_launcher_that_has_one_number_in_two_namespaces_is_not_deceived(tmp_path: Path):
    script = tmp_path / "twice.py"
    script.write_text(TWICE)
    command = (*INSIDE, "--mount-proc", sys.executable, str(script), "1000", *LAUNCHER)
    words = ("--nproc", 2, FAMILY, "session", "daemon", "--", "0:exit", 3)
    with launched(*words, directory=tmp_path, command=command) as launch:
        assert launch.status() == 3
        assert launch.stderr.count(BLIND) == 1


@pytest.mark.full
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_guard_that_is_killed_without_proc_takes_everything_with_it(signum, tmp_path: Path):
    words, command = ("--nproc", 2, FAMILY, *KINDS), (*UNSEEN["none"], *LAUNCHER)
    with launched(*words, directory=tmp_path, command=command) as launch:
        launch.read_until(2)
        launch.send(signum, launch.guard)
        assert launch.status() == 128 + signum


@pytest.mark.full
def test_stacks_are_not_asked_of_a_process_with_the_same_number(tmp_path: Path):
    words, command = ("--hang-timeout", 0.5, WORKERS / "sleep.py"), (*UNSEEN["none"], *LAUNCHER)
    with launched("--nproc", 2, *words, directory=tmp_path, command=command) as launch:
        until(lambda: "no stacks can be shown" in launch.stderr, "it says so")
        launch.send(signal.SIGTERM)
        assert launch.status() == 128 + signal.SIGTERM
        assert "whole stacks" not in launch.stderr


# PID 1


def first(launch: Launch) -> int:
    """The number outside of a namespace's PID 1."""
    until(lambda: bool(children(launch.pid)), "there is a PID 1")
    return children(launch.pid)[0]


def as_pid_1(*words: object, directory: Path):
    command = (*INSIDE, "--mount-proc", *LAUNCHER)
    return launched(*words, directory=directory, command=command)


@pytest.mark.parametrize("signum", mostly_full([signal.SIGTERM, signal.SIGHUP]))
def test_PID_1_ends_as_any_launcher_does(signum, tmp_path: Path):
    with as_pid_1("--nproc", 2, WORKERS / "sleep.py", directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signum, first(launch))
        assert launch.status() == 128 + signum


@pytest.mark.full
def test_PID_1_heeds_a_signal_that_comes_while_it_is_imported(tmp_path: Path):
    """A module that takes its time stands in for one of the standard library."""
    (tmp_path / "argparse.py").write_text(
        "import os, time\nos.write(1, b'ready\\n')\ntime.sleep(600)\n"
    )
    command = (*INSIDE, "--mount-proc", "env", f"PYTHONPATH={tmp_path}:{os.getcwd()}", *LAUNCHER)
    with launched("--nproc", 1, FAMILY, directory=tmp_path, command=command) as launch:
        launch.read_until(1)
        launch.send(signal.SIGTERM, first(launch))
        assert launch.status() == 128 + signal.SIGTERM


@pytest.mark.full
def test_PID_1_reaps_the_orphans_of_others_and_does_not_kill_them(tmp_path: Path):
    """`docker exec` starts processes in a container that no process there has as its child."""
    words = ("--nproc", 2, "--max-restarts", 1, FAMILY, "daemon")
    with as_pid_1(*words, directory=tmp_path) as launch:
        launch.read_until(2)
        init = first(launch)
        enter = ["nsenter", "--target", str(init), "--pid"]
        daemon = "exec >/dev/null; setsid sleep 600 & setsid sleep 0.1 &"
        subprocess.run([*enter, "sh", "-c", daemon], check=True)

        def orphans() -> list[str]:
            names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in children(init)]
            return [name for name in names if not name.startswith("spawnlaunch")]

        until(lambda: len(orphans()) == 1, "one has ended, and is no zombie")
        launch.send(signal.SIGKILL, children(children(init)[0])[0])
        until(lambda: "restart 1 of 1" in launch.stderr, "the workers start anew")
        launch.read_until(4)
        assert orphans() == ["sleep"]
        launch.send(signal.SIGTERM, init)
        assert launch.status() == 128 + signal.SIGTERM
