"""Workers that hang: it is noticed, and told where each of their threads is."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from spawnlaunch import machine
from spawnlaunch.failures import TIMED_OUT
from spawnlaunch.run import events
from spawnlaunch.run.hang import sources
from spawnlaunch.run.hang.sources import CALLS, find_py_spy, kernel_view
from spawnlaunch.run.signals import STACKS
from tests.support.launching import WITHOUT_GUARD, WORKERS, clean_environ, launch, reports
from tests.support.processes import state, until
from tests.support.watching import Launch, launched
from tests.support.witnessed import needs_line

STUCK = WORKERS / "stuck.py"
QUICKLY = ("--hang-timeout", "2", "--on-hang", "kill", "--grace", "0.5")


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


def is_filled(file: Path) -> bool:
    return bool(file.read_text())


def hang(place: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """A launch that is ended for its hang; what it leaves in TMPDIR is below the directory."""
    done = launch("--quiet", *QUICKLY, *words, environ=clean_environ(TMPDIR=str(place)))
    assert done.returncode == TIMED_OUT, done.stderr
    return done


def hangs(one: Launch) -> int:
    """How often it was said that nobody says anything."""
    return one.stderr.count("no output from any rank")


def ask(one: Launch, times: int = 1, last: str = "") -> None:
    """Ask for the stacks, and wait until the last process has told its own."""
    one.read_until(times)
    one.send(signal.SIGUSR2)
    until(lambda: last in one.stderr, f"{last!r} on stderr")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        *(((), ("register",)), (("--preload", "json"), ()), (("--no-prefix",), ("register",))),
        pytest.param((), (), marks=needs_line, id="its Python does"),
    ],
)
def test_a_worker_that_registered_tells_all_its_threads_by_itself(
    flags: tuple[str, ...], words: tuple[str, ...], tmp_path: Path
):
    result = tmp_path / "result.json"
    done = hang(tmp_path, "--nproc", 2, "--result", result, *flags, STUCK, *words)
    assert "no output from any rank" in done.stderr
    assert roll(done.stderr) == ["ranks 0-1 are in <module> (stuck.py:38)"]
    assert "File" not in done.stderr
    told = blocks(tmp_path)
    assert len(told) == 2
    for text in told.values():
        assert ", told by itself:" in text
        assert "in in_a_thread" in text
        assert "in <module>" in text
    assert "the workers hung: stopping" in done.stderr
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
    done = hang(tmp_path, "--nproc", 2, "--no-python", sys.executable, "-S", STUCK)
    told = blocks(tmp_path)
    assert len(told) == 2
    assert all(", by py-spy:" in text and "in_a_thread" in text for text in told.values())
    assert roll(done.stderr) == ["ranks 0-1 are in <module> (stuck.py:38)"]


def test_of_a_program_that_is_no_python_the_kernel_tells_and_of_its_children(tmp_path: Path):
    done = hang(tmp_path, "--nproc", 1, "--no-python", "sh", "-c", "sleep 60; :")
    (shell, child) = blocks(tmp_path).items()
    assert "sh -c sleep 60; :, as the kernel sees it" in shell[1]
    assert "below" in child[0]
    assert "(sleep) sleeping" in child[1]
    assert roll(done.stderr)[0].startswith("rank 0 is (sh) sleeping")
    assert roll(done.stderr)[1].startswith("1 process below rank 0 is (sleep) sleeping")
    # py-spy's own reason, if it is there, stands beside what the kernel tells, and nowhere else.
    assert all("said nothing" not in text for _, text in (shell, child))
    assert all(line.startswith("spawnlaunch: ") for line in done.stderr.splitlines())


def test_the_stacks_are_beside_the_files_that_are_kept(tmp_path: Path):
    words = ("--log-dir", tmp_path, "--redirects", 3, STUCK, "register")
    done = hang(tmp_path, "--nproc", 2, *words)
    told = blocks(tmp_path)
    assert len(told) == 2
    assert all("in in_a_thread" in text for text in told.values())
    assert len(roll(done.stderr)) == 1
    assert not list(tmp_path.glob("stacks-*"))


def test_the_stacks_of_ranks_that_are_not_shown_are(tmp_path: Path):
    done = hang(tmp_path, "--nproc", 2, "--ranks-filter", 0, STUCK, "register")
    assert all("in in_a_thread" in text for text in blocks(tmp_path).values())
    assert roll(done.stderr) == ["ranks 0-1 are in <module> (stuck.py:38)"]


def test_a_child_of_a_worker_is_asked_too(tmp_path: Path):
    done = hang(tmp_path, "--nproc", 1, STUCK, "register", "fork")
    assert [name.count("below") for name in blocks(tmp_path)] == [0, 1]
    assert roll(done.stderr) == [
        "rank 0 is in <module> (stuck.py:38)",
        "1 process below rank 0 is in <module> (stuck.py:35)",
    ]


def test_the_rank_that_is_elsewhere_is_named_first(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import faulthandler, os, threading, time\n"
        "faulthandler.register(int(os.environ['SPAWNLAUNCH_STACK_SIGNAL']))\n"
        "def save_checkpoint():\n    while True:\n        time.sleep(60)\n"
        "if os.environ['RANK'] == '2':\n    save_checkpoint()\n"
        "threading.Event().wait()\n"
    )
    with launched("--nproc", 4, "--hang-timeout", 2, script, directory=tmp_path) as one:
        until(lambda: "the whole stacks are in" in one.stderr, "the roll is called")
        while "ranks 0-1,3" not in one.stderr:  # they had not started yet
            times = one.stderr.count("the whole stacks are in")
            until(lambda n=times: one.stderr.count("the whole stacks are in") > n, "once more")
        last = one.stderr.rpartition("this is where they are:")[2]
        place = Path(re.findall(r"the whole stacks are in (\S+)", last)[0])
        assert roll(last)[:2] == [
            "rank 2 is in save_checkpoint (script.py:5)",
            "ranks 0-1,3 wait in wait (script.py:8)",
        ]
        assert sorted(file.name for file in place.iterdir()) == [f"rank-{i}.log" for i in range(4)]
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM


def test_what_a_rank_says_while_it_tells_its_stacks_is_shown(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import faulthandler, os, time\n"
        "faulthandler.register(int(os.environ['SPAWNLAUNCH_STACK_SIGNAL']))\n"
        "os.write(1, b'ready\\n')\n"
        "n = 0\nwhile True:\n    n += 1\n    os.write(2, b'said %d\\n' % n)\n    time.sleep(0.01)\n"
    )
    with launched("--nproc", 2, "--stack-on-usr2", script, directory=tmp_path) as one:
        ask(one, 2, "the whole stacks are in")
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM
        said = [int(number) for number in re.findall(r"(?m)^said (\d+)$", one.stderr)]
        assert sorted(said[0::1]).count(max(said)) in (1, 2)
        for number in range(1, min(max(said), 50)):
            assert said.count(number) == 2
        assert "File" not in one.stderr


@pytest.mark.parametrize("flags", [(), ("--redirects", "3"), ("--ranks-filter", "1")])
def test_a_rank_that_is_heard_from_anywhere_is_no_hang(flags: tuple[str, ...], tmp_path: Path):
    """Rank 0 speaks all the time, wherever that goes; rank 1 never does."""
    speak = "if [ $RANK = 0 ]; then for i in $(seq 30); do echo $i; sleep 0.1; done; fi"
    place = ("--log-dir", tmp_path) if "--redirects" in flags else ()
    words = ("--nproc", 2, *flags, *place, "--hang-timeout", "2.5", "--on-hang", "kill")
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


def test_dump_goes_on_and_tells_again_while_nothing_is_said(tmp_path: Path):
    with launched(
        "--nproc", 1, "--hang-timeout", "0.4", STUCK, "register", directory=tmp_path
    ) as one:
        until(lambda: hangs(one) >= 2, "a second dump")
        assert one.launcher.poll() is None
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM


def test_a_launch_that_is_stopped_does_not_hang(tmp_path: Path):
    with launched("--nproc", 2, "--hang-timeout", "2", STUCK, directory=tmp_path) as one:
        one.read_until(2)
        while_they_started, workers = hangs(one), one.workers
        one.send(signal.SIGTSTP)
        until(lambda: {state(pid) for pid in (one.pid, *workers)} == {"T"}, "all are stopped")
        time.sleep(2.5)
        one.send(signal.SIGCONT)
        until(lambda: {state(pid) for pid in workers} == {"S"}, "the workers go on")
        assert hangs(one) == while_they_started
        until(lambda: hangs(one) > while_they_started, "they hang when nobody has stopped them")
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM


def test_workers_that_hung_are_started_anew(tmp_path: Path):
    hung = ("--max-restarts", 1, *QUICKLY, WORKERS / "again.py", 1, "9:exit", 0)
    done = launch("--quiet", "--nproc", 2, *hung, environ=clean_environ(TMPDIR=str(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert re.search(r"the workers hung after .* s: restart 1 of 1", done.stderr)


@pytest.mark.parametrize("command", [None, WITHOUT_GUARD])
def test_SIGUSR2_asks_for_stacks_and_does_not_reach_the_workers(command, tmp_path: Path):
    with launched(
        "--nproc", 2, "--stack-on-usr2", STUCK, "register", "handler",
        directory=tmp_path, **({"command": command} if command else {}),
    ) as one:  # fmt: skip
        ask(one, 2, "the whole stacks are in")
        # One of them may not have come from its write to the next line, where it pauses.
        assert re.search(r"rank(s 0-1 are| 1 is) in <module> \(stuck\.py:3[68]\)", one.stderr)
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM
        assert b"saved" not in one.output


def test_without_the_flag_SIGUSR2_is_the_workers(tmp_path: Path):
    with launched("--nproc", 2, STUCK, "handler", directory=tmp_path) as one:
        one.read_until(2)
        one.send(signal.SIGUSR2)
        one.read_until(2, "saved")
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM
        assert "stack" not in one.stderr


STOPS = """
import faulthandler, os, signal, sys, time
faulthandler.register(int(os.environ["SPAWNLAUNCH_STACK_SIGNAL"]))
os.write(1, b"ready\\n")
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os._exit(7)
"""


def test_the_launcher_watches_while_somebody_takes_his_time_to_tell(tmp_path: Path):
    """A worker that is stopped tells nothing; another one's failure is seen, and its stacks are."""
    script, go = tmp_path / "script.py", tmp_path / "go"
    script.write_text(STOPS)
    words = ("--nproc", 2, "--grace", "0.2", "--stack-on-usr2")
    with launched(*words, script, go, directory=tmp_path) as one:
        ask(one, 2)
        until(lambda: list(tmp_path.rglob("rank-0.log")), "rank 0 has told")
        go.touch()
        assert one.status() == 7
        assert one.all_gone()
        assert [line.startswith("rank 0 is in <module>") for line in roll(one.stderr)[:1]] == [True]


def test_of_a_worker_that_is_stopped_somebody_else_tells(tmp_path: Path):
    script, go = tmp_path / "script.py", tmp_path / "go"
    script.write_text(STOPS)
    words = ("--nproc", 2, "--grace", "0.2", "--stack-on-usr2")
    with launched(*words, script, go, directory=tmp_path) as one:
        ask(one, 2, "the whole stacks are in")
        (by_itself, by_another) = (text for _, text in sorted(blocks(tmp_path).items()))
        assert ", told by itself:" in by_itself
        assert ", told by itself:" not in by_another
        go.touch()
        assert one.status() == 7


def test_who_is_asked_again_tells_where_it_is_then(tmp_path: Path):
    """Of a file, too, only what was added is taken for the answer."""
    words = ("--nproc", 2, "--stack-on-usr2", "--redirects", 3, "--log-dir", tmp_path / "logs")
    with launched(*words, STUCK, "register", directory=tmp_path) as one:
        logs = tmp_path / "logs"
        until(lambda: sum(map(is_filled, logs.rglob("stdout.log"))) == 2, "both are there")
        for times in (1, 2):
            one.send(signal.SIGUSR2)
            until(lambda n=times: one.stderr.count("the whole stacks are in") == n, "it is told")
        told = blocks(tmp_path)
        assert [text.count("in in_a_thread") for text in told.values()] == [1, 1]
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM


def test_that_a_rank_is_stopped_is_said_once(tmp_path: Path):
    """And as long as it is, the silence of the others is no hang."""
    speak = "while :; do echo talk; sleep 0.05; done"
    script = f"if [ $RANK = 0 ]; then kill -STOP $$; fi; {speak}"
    words = ("--nproc", 2, "--hang-timeout", 0.3, "--no-python", "sh", "-c", script)
    with launched(*words, directory=tmp_path) as one:
        until(lambda: "no hang is looked for" in one.stderr, "it is said")
        one.read_until(one.output.count(b"talk") + 40, "talk")
        assert one.stderr.count("no hang is looked for") == 1
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM


def test_who_always_has_something_to_say_does_not_keep_the_others_from_telling(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import faulthandler, os, sys, time\n"
        "faulthandler.register(int(os.environ['SPAWNLAUNCH_STACK_SIGNAL']))\n"
        "os.write(1, b'ready\\n')\n"
        "while os.environ['RANK'] == '0':\n    time.sleep(0.01)\n    os.write(2, b'talk\\n')\n"
        "time.sleep(600)\n"
    )
    with launched("--nproc", 2, "--stack-on-usr2", script, directory=tmp_path) as one:
        ask(one, 2, "rank 1")
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM


def test_nobody_is_bothered_with_stacks_unasked():
    (plain,) = reports(launch("--nproc", 1, WORKERS / "report.py").stdout)
    assert "SPAWNLAUNCH_STACK_SIGNAL" not in plain["environ"]
    flags = ("--nproc", 1, "--stack-on-usr2")
    (asked,) = reports(launch(*flags, WORKERS / "report.py").stdout)
    assert asked["environ"]["SPAWNLAUNCH_STACK_SIGNAL"] == str(STACKS)


def test_threads_that_do_the_same_share_a_line():
    script = (
        "import threading, time\n"
        "for _ in range(3):\n    threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print('started', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        view: list[str] = []

        def all_sleep() -> bool:
            view[:] = [line for line in kernel_view(process.pid) if "3 threads" in line]
            return any("sleeping" in line for line in view)

        until(all_sleep, "all sleep")
        call = ""
        with suppress(OSError):  # to trace another process may be forbidden
            call = Path(f"/proc/{process.pid}/syscall").read_text()
        process.kill()
    assert not call or re.search(", system call [a-z]", view[0])
    assert kernel_view(process.pid) == []


@pytest.mark.parametrize(
    ("architecture", "header"),
    [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")],
)
def test_the_numbers_of_system_calls_are_those_of_the_kernels_headers(
    architecture: str, header: str
):
    path = Path("/usr/include", header)
    if not path.exists():
        pytest.skip(f"{path} is not installed (Debian: linux-libc-dev)")
    numbers = dict(re.findall(r"#define __NR_(\w+) (\d+)", path.read_text()))
    for number, name in CALLS[architecture].items():
        assert numbers[name] == str(number)


@pytest.mark.usefixtures("py_spy")
def test_whoever_was_told_in_time_is_told_once():
    """Also when the time has passed after which nobody would have waited for py-spy any more."""
    loop, told = events.Loop(), []
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        sources.look(process.pid, loop, lambda how, text: told.append((how, text)))
        while not told:
            loop.turn(0.1)
        try:
            machine.lose(-2 * sources.PATIENCE_S)
            for _ in range(3):
                loop.turn(0)
        finally:
            machine.lose(2 * sources.PATIENCE_S)
            process.kill()
    assert len(told) == 1
