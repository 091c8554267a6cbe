"""Workers that hang: it is noticed, and told where each of their threads is."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spawnlaunch.base.signals import STACKS
from spawnlaunch.hang.spying import find_py_spy
from spawnlaunch.outcome.failures import TIMED_OUT
from tests.support.launching import LAUNCHER, WITHOUT_GUARD, WORKERS, clean_environ, launch, reports
from tests.support.matrix import mostly_full
from tests.support.processes import hold_by_a_debugger, until
from tests.support.watching import Launch, launched
from tests.support.witnessed import needs_line

STUCK = WORKERS / "stuck.py"
QUICKLY = ("--hang-timeout", "2", "--on-hang", "kill", "--grace", "0.5")
TOLD = "the whole stacks are in"
ALL_THERE = "ranks 0-1 are in <module> (stuck.py:39)"
# What is at the top of scripts that tell their stacks when they are asked.
REGISTERS = (
    "import os, signal, sys, threading, time\n"
    "from spawnlaunch import witness; witness.begin()\n"
    "rank = os.environ['RANK']\n"
    "os.write(1, b'ready\\n')\n"
)


def blocks(place: Path) -> dict[str, str]:
    """What the files below a directory have of each process: by "rank 0 on vm (pid 12)"."""
    told: dict[str, str] = {}
    for file in sorted(place.rglob("rank-*.log")) + sorted(place.rglob("stacks.log")):
        parts = re.split(r"(?m)^\d+-\d+-\d+ \S+ (rank \d+ on \S+ \(pid [^)]*\)):", file.read_text())
        told |= zip(parts[1::2], parts[2::2], strict=True)
    return told


def roll(stderr: str) -> list[str]:
    """The lines of the roll call."""
    return [line.removeprefix("spawnlaunch:   ") for line in stderr.splitlines() if ":   " in line]


def hang(place: Path, *words: object) -> str:
    """What a launch says that is ended for its hang, and leaves in TMPDIR below the directory."""
    done = launch("--quiet", *QUICKLY, *words, environ=clean_environ(TMPDIR=str(place)))
    assert done.returncode == TIMED_OUT, done.stderr
    return done.stderr


def hangs(one: Launch) -> int:
    """How often it was said that nobody says anything."""
    return one.stderr.count("no output from any rank")


def is_filled(file: Path) -> bool:
    return bool(file.read_text())


def ask(one: Launch, times: int = 1, last: str = TOLD) -> None:
    """Ask for the stacks, and wait until the last process has told its own."""
    one.read_until(times)
    one.send(signal.SIGUSR2)
    until(lambda: last in one.stderr, f"{last!r} on stderr")


def end(one: Launch) -> None:
    one.send(signal.SIGTERM)
    assert one.status() == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((STUCK,), marks=needs_line, id="its Python does"),
        ("--prefix=never", STUCK, "register"),
        # Also of ranks that are not shown.
        pytest.param(("--ranks-filter", 0, STUCK, "register"), marks=pytest.mark.full),
        pytest.param(("--preload", "json", STUCK), marks=pytest.mark.full),
    ],
)
def test_a_worker_that_registered_tells_all_its_threads_by_itself(words, tmp_path: Path):
    result = tmp_path / "result.json"
    stderr = hang(tmp_path, "--nproc", 2, "--result", result, *words)
    assert "no output from any rank" in stderr
    assert roll(stderr) == [ALL_THERE]
    assert "File" not in stderr
    told = blocks(tmp_path)
    assert len(told) == 2
    for text in told.values():
        assert ", by itself:" in text
        assert "in in_a_thread" in text
        assert "in <module>" in text
    assert "the workers hung: stopping" in stderr
    assert json.loads(result.read_text())["cause"] == "hang"


@pytest.fixture
def py_spy() -> None:
    """Only where it is installed, and may look at a process that is not below it."""
    program = find_py_spy()
    if program is None:
        pytest.skip("py-spy is not installed")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        time.sleep(0.2)  # for Python to start
        command = [program, "dump", "--pid", str(other.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        other.kill()
    if "ermission" in done.stderr or "EPERM" in done.stderr:
        pytest.skip(f"this machine lets no process look at another: {done.stderr.splitlines()[0]}")


@pytest.mark.usefixtures("py_spy")
def test_of_one_that_did_not_py_spy_tells(tmp_path: Path):
    """As its Python, which reads no .pth."""
    stderr = hang(tmp_path, "--nproc", 2, "--no-python", sys.executable, "-S", STUCK)
    told = blocks(tmp_path)
    assert len(told) == 2
    assert all(", by py-spy:" in text and "in_a_thread" in text for text in told.values())
    assert roll(stderr) == [ALL_THERE]


def test_of_a_program_that_is_no_python_and_of_its_children_the_place_alone_is_told(tmp_path: Path):
    stderr = hang(tmp_path, "--nproc", 1, "--no-python", "sh", "-c", "sleep 60; :")
    (shell, child) = blocks(tmp_path).items()
    assert "sh -c sleep 60; :, py-spy" in shell[1]
    assert "below" in child[0]
    assert roll(stderr)[0].startswith("rank 0 is in sh, without stacks (py-spy")
    assert roll(stderr)[1].startswith("1 process below rank 0 is in sleep, without stacks")
    # py-spy's own reason, if it is there, stands beside that, and nowhere else.
    assert all("printed nothing" not in text for _, text in (shell, child))
    assert all(line.startswith("spawnlaunch: ") for line in stderr.splitlines())


def test_a_child_of_a_worker_is_asked_too(tmp_path: Path):
    words = ("--nproc", 1, "--stack-on-usr2", STUCK, "register", "fork")
    with launched(*words, directory=tmp_path) as one:
        ask(one)  # the child is there before the worker is ready
        end(one)
    assert [name.count("below") for name in blocks(tmp_path)] == [0, 1]
    rank, child = roll(one.stderr)[:2]
    assert re.fullmatch(r"rank 0 is in <module> \(stuck\.py:3[79]\)", rank)
    assert re.fullmatch(r"1 process below rank 0 is in <module> \(stuck\.py:3[56]\)", child)


def test_the_rank_that_is_elsewhere_is_named_first_and_told_again_while_nothing_is_said(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"{REGISTERS}def save_checkpoint():\n    while True:\n        time.sleep(60)\n"
        "if rank == '2':\n    save_checkpoint()\n"
        "threading.Event().wait()\n"
    )
    with launched("--nproc", 4, "--hang-timeout", 1, script, directory=tmp_path) as one:
        until(lambda: hangs(one) > 1, "a second dump")
        while "ranks 0-1,3" not in one.stderr:  # they had not started yet
            times = one.stderr.count(TOLD)
            until(lambda n=times: one.stderr.count(TOLD) > n, "once more")
        last = one.stderr.rpartition(TOLD)[0].rpartition("this is where they are:")[2]
        place = Path(re.findall(rf"{TOLD} (\S+)", one.stderr)[0])
        assert roll(last)[:2] == [
            "rank 2 is in save_checkpoint (script.py:7)",
            "ranks 0-1,3 wait in wait (script.py:10)",
        ]
        assert sorted(file.name for file in place.iterdir()) == [f"rank-{i}.log" for i in range(4)]
        end(one)


def test_what_a_rank_says_while_it_tells_its_stacks_is_shown(tmp_path: Path):
    """And who always has something to say does not keep the others from telling."""
    script = tmp_path / "script.py"
    script.write_text(
        f"{REGISTERS}n = 0\nwhile rank == '0':\n    n += 1\n    os.write(2, b'said %d\\n' % n)\n"
        "    time.sleep(0.01)\ntime.sleep(600)\n"
    )
    with launched("--nproc", 2, "--stack-on-usr2", script, directory=tmp_path) as one:
        ask(one, 2)
        assert "rank 1 is in" in one.stderr
        end(one)
        said = [int(number) for number in re.findall(r"(?m)^said (\d+)$", one.stderr)]
        assert said == [*range(1, len(said) + 1)]
        assert "File" not in one.stderr


@pytest.mark.parametrize(
    "flags",
    mostly_full(["--ranks-filter=1", "--redirects=3", "--prefix=never"]),
)
def test_a_rank_that_is_heard_from_anywhere_is_no_hang(flags: str, tmp_path: Path):
    """Rank 0 speaks all the time, wherever that goes; rank 1 never does."""
    speak = "if [ $RANK = 0 ]; then for i in $(seq 30); do echo $i; sleep 0.1; done; fi"
    place = ("--log-dir", tmp_path) if "--redirects" in flags else ()
    words = ("--nproc", 2, flags, *place, "--hang-timeout", "2.5", "--on-hang", "kill")
    done = launch("--quiet", *words, "--no-python", "sh", "-c", speak)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_reads_nothing_is_not_the_workers_hang(tmp_path: Path):
    words = ("--nproc", 2, "--hang-timeout", "3", WORKERS / "chatter.py", 30_000, "1")
    with launched(*words, directory=tmp_path) as one:
        one.read_until(1, "rank")
        while_they_started = hangs(one)
        time.sleep(4)
        assert one.launcher.poll() is None
        assert one.status() == 0, one.stderr
        assert hangs(one) == while_they_started


@pytest.mark.parametrize("is_kept", [True, False])
def test_who_is_asked_again_tells_where_it_is_then_and_no_worker_hears_of_it(is_kept, tmp_path):
    logs = tmp_path / "logs"
    words = ("--nproc", 2, "--stack-on-usr2", STUCK, "register", "handler")
    flags = ("--redirects", 3, "--log-dir", logs) if is_kept else ()
    command = LAUNCHER if is_kept else WITHOUT_GUARD
    with launched(*flags, *words, directory=tmp_path, command=command) as one:
        if is_kept:
            ready = "*/*/*/stdout.log"
            until(lambda: [*map(is_filled, logs.glob(ready))] == [True, True], "both are there")
        for times in (1, 2):
            ask(one, 0 if is_kept else 2)
            until(lambda n=times: one.stderr.count(TOLD) == n, "it is told")
        told = blocks(logs if is_kept else tmp_path)
        assert [text.count("in in_a_thread") for text in told.values()] == [1, 1]
        # One of them may not have come from its write to the next line, where it pauses.
        assert re.search(r"rank(s 0-1 are| 1 is) in <module> \(stuck\.py:3[79]\)", one.stderr)
        end(one)
        kept = [file.read_text() for file in logs.rglob("stdout.log")]
        assert b"saved" not in one.output + "".join(kept).encode()


def test_without_the_flag_SIGUSR2_is_the_workers_and_nobody_is_bothered_with_stacks(tmp_path: Path):
    with launched("--nproc", 2, STUCK, "handler", directory=tmp_path) as one:
        one.read_until(2)
        one.send(signal.SIGUSR2)
        one.read_until(2, "saved")
        end(one)
        assert "stack" not in one.stderr
    for flags, number in ((), None), (("--stack-on-usr2",), str(STACKS)):
        (told,) = reports(launch("--nproc", 1, *flags, WORKERS / "report.py").stdout)
        assert told["environ"].get("SPAWNLAUNCH_STACK_SIGNAL") == number


def test_that_a_rank_is_stopped_is_said_once(tmp_path: Path):
    """And as long as it is, the silence of the others is no hang."""
    speak = "while :; do echo talk; sleep 0.05; done"
    script = f"if [ $RANK = 0 ]; then kill -STOP $$; fi; {speak}"
    words = ("--nproc", 2, "--hang-timeout", 0.3, "--no-python", "sh", "-c", script)
    with launched(*words, directory=tmp_path) as one:
        until(lambda: "no hang is looked for" in one.stderr, "it is said")
        one.read_until(one.output.count(b"talk") + 40, "talk")
        assert one.stderr.count("no hang is looked for") == 1
        end(one)


WAITS = """import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
for step in range(3):
    if step == 2 and dist.get_rank() == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(1))
"""


def test_the_first_line_names_the_rank_that_the_others_wait_for(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(WAITS)
    words = ("--nproc", 2, "--quiet", "--hang-timeout", 2, script)
    with launched(*words, directory=tmp_path) as one:
        until(lambda: "the others wait for" in one.stderr, "all have met twice, and are silent")
        until(lambda: TOLD in one.stderr.partition("the others wait for")[2], "it all")
        report = one.stderr.partition("the others wait for")[2].splitlines()
        assert re.fullmatch(
            r" rank 1, \S+ m?s so far, before script.py:8 \(all_reduce\); it is at script.py:7",
            report[0],
        )
        assert report[1] == "spawnlaunch: this is where they are:"
        end(one)


STOPS = "[ $RANK = 1 ] && kill -STOP $$; while :; do echo talk; sleep 0.1; done"


def test_a_rank_that_stays_stopped_hangs_whatever_the_others_say(tmp_path: Path):
    words = ("--nproc", 2, *QUICKLY, "--no-python", "sh", "-c", STOPS)
    done = launch(*words, environ=clean_environ(TMPDIR=str(tmp_path)))
    assert done.returncode == TIMED_OUT
    assert re.search(r"rank 1 on \S+ is stopped, for 2 s now; this is where they are:", done.stderr)
    assert re.search(r"rank 1 on \S+ \(pid (\d+)\) is stopped; run kill -CONT \1\n", done.stderr)
    assert "the workers hung: stopping" in done.stderr


def test_a_rank_that_a_debugger_holds_is_no_hang(tmp_path: Path):
    words = ("--nproc", 2, *QUICKLY[:1], 1, *QUICKLY[2:], WORKERS / "sleep.py")
    with launched(*words, directory=tmp_path) as one:
        until(lambda: len(one.workers) == 2, "both are there")
        let_go = hold_by_a_debugger(one.workers[0])
        try:
            until(lambda: "is held by a debugger" in one.stderr, "it is said")
            time.sleep(2.5)
            assert one.launcher.poll() is None
            assert one.stderr.count("no hang is looked for") == 1
        finally:
            let_go()
        assert one.status() == TIMED_OUT


@pytest.mark.full  # so long has to pass
def test_a_launch_that_waits_for_a_long_silence_hardly_wakes(tmp_path: Path):
    words = ("--nproc", 2, "--hang-timeout", 1000, WORKERS / "sleep.py")
    with launched(*words, directory=tmp_path) as one:
        one.read_until(2)
        time.sleep(4)  # what is done once they have started

        def wakes() -> dict[int, int]:
            own = one.launcher.pid, one.guard
            return {pid: _switches(Path(f"/proc/{pid}/status").read_text()) for pid in own}

        before = wakes()
        time.sleep(15)
        more = {pid: count - before[pid] for pid, count in wakes().items()}
        assert max(more.values()) <= 3, more
        end(one)


def _switches(status: str) -> int:
    return int(re.findall(r"(?m)^voluntary_ctxt_switches:\s+(\d+)", status)[0])
