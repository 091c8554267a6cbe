"""Time in which a process could not run is not its fault: no patience with it runs meanwhile.

Several launches are stopped for longer than anybody has patience, all at once, so that the tests
wait for that time together.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from spawnlaunch.failures import TIMED_OUT
from tests.support.launching import WORKERS
from tests.support.processes import everybody, hold_by_a_debugger, state, until
from tests.support.watching import Launch, launched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a guard on Linux only")

PATIENT = WORKERS / "patient.py"
GRACE_S = 5.0  # the patience of each launch here
GAP_S = GRACE_S + 1.7
LEAVES = (
    "import subprocess, sys\n"
    "wait = 'while [ ! -e ' + sys.argv[1] + ' ]; do sleep 0.02; done; echo uploaded'\n"
    "subprocess.Popen(['sh', '-c', wait], start_new_session=True)\n"
    "print('ready', flush=True)\n"
)
FILLS = "import os\nos.write(1, b'ready\\n')\nos.write(1, b'.' * 300_000 + b'\\nall\\n')\n"


class Ended(NamedTuple):
    """How a launch ended."""

    status: int
    output: str
    stderr: str


def told_to_end(one: Launch) -> None:
    one.read_until(2)
    one.send(signal.SIGTERM)
    one.read_until(2, "saving")


def left_behind(one: Launch) -> None:
    one.read_until(2)
    until(lambda: "all workers have ended well," in one.stderr, "it is said")


# What each launch is, and what is waited for before it is stopped.
CASES: dict[str, tuple[tuple[object, ...], Callable[[Launch], None]]] = {
    "save": ((PATIENT, "GO"), told_to_end),
    "are silent": (
        ("--hang-timeout", GRACE_S, "--on-hang", "kill", PATIENT, "GO"),
        lambda one: one.read_until(2),
    ),
    "left something": ((LEAVES, "GO"), left_behind),
    "are not read": ((FILLS,), lambda one: until(lambda: not one.workers, "they have ended")),
    "are suspended": ((PATIENT, "GO"), told_to_end),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    """All these launches, which were stopped for a time."""
    directory, go = tmp_path_factory.mktemp("gaps"), {}
    with ExitStack() as stack:
        launches: dict[str, Launch] = {}
        for name, (words, _) in CASES.items():
            place = directory / name.replace(" ", "-")
            place.mkdir()
            go[name] = place / "go"
            script = place / "script.py"
            if isinstance(words[0], str) and "import" in words[0]:
                script.write_text(words[0])
                words = (script, *words[1:])
            command = [go[name] if word == "GO" else word for word in words]
            one = launched("--nproc", 2, "--grace", GRACE_S, *command, directory=place)
            launches[name] = stack.enter_context(one)
        pids: dict[str, list[int]] = {}
        for name, (_, before) in CASES.items():
            one = launches[name]
            before(one)
            if name == "are suspended":
                one.send(signal.SIGTSTP)
                until(lambda pid=one.pid: state(pid) == "T", "the launcher is stopped")
                continue
            pids[name] = everybody(one.pid)
            for pid in reversed(pids[name]):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(GAP_S)
        for name in launches:
            go[name].touch()
            for pid in pids.get(name, [])[:2]:  # launcher and guard
                os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)  # for the guard to do what it thinks is due
        for name, one in launches.items():
            for pid in pids.get(name, [one.pid]):
                with suppress(ProcessLookupError):  # it was continued by the guard, and has ended
                    os.kill(pid, signal.SIGCONT)
        yield {name: Ended(one.status(), one.rest(), one.stderr) for name, one in launches.items()}


def test_workers_that_save_have_their_whole_grace_though_all_were_stopped(stopped):
    assert stopped["save"].status == 85, stopped["save"]
    assert stopped["save"].output.count("saved") == 2


def test_workers_that_could_not_speak_do_not_hang(stopped):
    assert stopped["are silent"].status == 0, stopped["are silent"]
    assert stopped["are silent"].output.count("went") == 2
    assert "no output" not in stopped["are silent"].stderr


def test_what_workers_left_has_the_whole_grace_to_end_by_itself(stopped):
    assert stopped["left something"].status == 0
    assert stopped["left something"].output.count("uploaded") == 2
    assert "told to end" not in stopped["left something"].stderr


def test_a_reader_that_could_not_read_has_not_given_up(stopped):
    assert stopped["are not read"].status == 0
    assert stopped["are not read"].output.count("all") == 2
    assert stopped["are not read"].stderr == ""


def test_the_grace_stands_while_the_launch_is_suspended(stopped):
    assert stopped["are suspended"].status == 85, stopped["are suspended"]


def hold_by_a_signal(pid: int) -> Callable[[], None]:
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "hold", [hold_by_a_signal, pytest.param(hold_by_a_debugger, marks=pytest.mark.full)]
)
def test_a_launcher_that_is_held_for_longer_than_it_was_to_wait_goes_on(hold, tmp_path: Path):
    """sigtimedwait of Python tells of a signal then that nobody has sent."""
    go = tmp_path / "go"
    with launched("--nproc", 2, PATIENT, go, directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signal.SIGCONT)  # it looks after the guard a second later
        time.sleep(0.3)
        let_go = hold(launch.pid)
        time.sleep(1.5)
        let_go()
        told_to_end(launch)
        go.touch()
        assert launch.status() == 85, launch.stderr
        assert launch.stderr.count("\n") == 1


@pytest.mark.parametrize("is_told_first", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_worker_that_is_stopped_and_told_to_end_is_continued(is_told_first, tmp_path: Path):
    go = tmp_path / "go"
    with launched("--nproc", 2, PATIENT, go, directory=tmp_path) as launch:
        launch.read_until(2)
        worker = launch.workers[0]
        if is_told_first:
            told_to_end(launch)
        launch.send(signal.SIGSTOP, worker)
        until(lambda: state(worker) == "T", "it is stopped")
        if not is_told_first:
            told_to_end(launch)
        until(lambda: state(worker) in "SR", "it goes on")
        go.touch()
        assert launch.status() == 85, launch.stderr


def test_a_rank_that_is_stopped_is_no_hang_and_what_is_said_to_type_continues_it(tmp_path: Path):
    go = tmp_path / "go"
    flags = ("--hang-timeout", 3, "--on-hang", "kill")
    with launched("--nproc", 2, *flags, PATIENT, go, directory=tmp_path) as launch:
        launch.read_until(2)
        rank, worker = 1, launch.workers[1]
        launch.send(signal.SIGSTOP, worker)
        until(lambda: "no hang is looked for" in launch.stderr, "it is said")
        said = launch.stderr.strip()
        typed = f"type kill -CONT {worker}"
        assert f"while rank {rank} (pid {worker}) is stopped; {typed}" in said
        go.touch()
        os.system(typed.removeprefix("type "))
        assert launch.status() == 0, launch.stderr
        assert launch.stderr.strip() == said


@pytest.mark.full
def test_silence_after_a_stop_is_a_hang_again(tmp_path: Path):
    flags = ("--hang-timeout", 2, "--on-hang", "kill", "--grace", 0.2)
    words = ("--no-python", "sh", "-c", "echo ready; exec sleep 600")
    with launched("--nproc", 2, *flags, *words, directory=tmp_path) as launch:
        launch.read_until(2)
        worker = launch.workers[0]
        launch.send(signal.SIGSTOP, worker)
        until(lambda: "is stopped; type" in launch.stderr, "it is said")
        launch.send(signal.SIGCONT, worker)
        assert launch.status() == TIMED_OUT


def test_what_the_resource_manager_limits_does_not_stand(tmp_path: Path):
    """Slurm kills after KillWait, whoever is stopped: the workers are ended before."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("KillWait=4\n")
    slurm = {"SLURM_JOB_ID": "1", "SLURMD_NODENAME": "node0", "SLURM_CONF": str(conf)}
    words = ("--standalone", "--nproc", 2, "--grace", 1.5, PATIENT, tmp_path / "never")
    with launched(*words, directory=tmp_path, environ=slurm) as launch:
        told_to_end(launch)
        launch.send(signal.SIGTSTP)
        until(lambda: state(launch.pid) == "T", "the launcher is stopped")
        guard = launch.guard
        until(lambda: state(guard) == "Z", "the guard has killed the workers, and ended")
        launch.send(signal.SIGCONT)
        assert launch.status() == 128 + signal.SIGTERM, launch.stderr
