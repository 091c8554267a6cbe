"""A worker that forks, waits for signals, or has no file left, is no worse off than without."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from spawnlaunch.hang import asked
from tests.support.matrix import mostly_full
from tests.support.processes import until
from tests.support.witnessed import needs_line
from tests.witness.asking import IDLE, answer_of, begin_of, heard, listens, place_of, worker

pytestmark = needs_line

# What is registered first is called last before a fork.
COUNTS = """
import os, sys, threading
counts = []
os.register_at_fork(before=lambda: counts.append(len(os.listdir("/proc/self/task"))))
import torch
"""
FORKS = """
def fork(times):
    for _ in range(times):
        pid = os.fork()
        if not pid:
            os._exit(len(os.listdir("/proc/self/task")) - 1)
        assert os.waitpid(pid, 0)[1] == 0
"""


FORKS_TOO = """
import os
def fork_too():
    if not os.environ.get("within"):
        os.environ["within"] = "yes"
        fork(1)
        del os.environ["within"]
os.register_at_fork(before=fork_too)
import torch
"""
BLOCKS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
import torch
fork(3)
print(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))), flush=True)
"""
HAS_NO_FILES = """
before = os.listdir("/proc/self/fd")
import torch
if not (pid := os.fork()):
    print(os.listdir("/proc/self/fd") == before, flush=True)
    os._exit(0)
os.wait()
"""
MANY_FILES = """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
{}
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1500)]
"""
BY_A_THREAD = """
import threading
def load():
    import torch
one = threading.Thread(target=load)
one.start()
one.join()
"""

# A script, what it prints before it is ready, and whether it answers then.
SCRIPTS = {
    "no thread is there at a fork": (
        f"{COUNTS}fork(100)\nprint(len(counts), max(counts), flush=True)\n", "100 1", True
    ),
    "a fork warns of nothing": ("import torch\nfork(20)\n", "", True),
    "a fork within a fork": (f"{FORKS_TOO}fork(20)\n", "", True),
    "the child of a fork has none of its files": (HAS_NO_FILES, "True", True),
    "signals that are blocked stay so": (BLOCKS, f"[{int(signal.SIGUSR2)}]", True),
    "more files than select takes, before": (MANY_FILES.format(""), "", True),
    "more files than select takes, after": (MANY_FILES.format("import torch"), "", True),
    "all files are closed": ("import torch\nos.closerange(3, 100)\nfork(3)\n", "", False),
    "torch is imported by another thread": (BY_A_THREAD, "", True),
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_full(SCRIPTS, 6))
def test_a_script_is_no_worse_off_than_without(name: str, tmp_path: Path):
    script, prints, answers = SCRIPTS[name]
    warns = ("-W", "error") if sys.version_info >= (3, 12) else ()  # of a fork with threads
    with worker(tmp_path, f"import os, sys\n{FORKS}{script}{IDLE}", sys.executable, *warns) as one:
        if prints:
            assert one.line() == prints
        assert one.line() == "ready"
        if answers:
            answer = answer_of(one.pid, seconds=0.1)
            assert answer.samples
            assert place_of(answer).startswith("<module> (script.py:")
        else:
            assert not listens(one.pid)
        assert one.ends() == (0, "")


def test_a_fork_while_an_answer_is_under_way(tmp_path: Path):
    """It ends early, and the fork waits for nobody; afterwards there is another."""
    script = f"{COUNTS}{FORKS}print('ready', flush=True)\nwhile sys.stdin.readline():\n"
    script += "    fork(1)\n    print(max(counts), flush=True)\n"
    with worker(tmp_path, script) as one:
        one.line()
        for _ in range(5):
            under_way = asked.Question(one.pid, begin_of(one.pid), 5.0)
            time.sleep(0.1)  # as a rule it is heard by then; else it is answered in full
            one.tell()
            assert one.line() == "1"
            assert heard(under_way).samples
        answer_of(one.pid)
        assert one.ends() == (0, "")


@pytest.mark.full
def test_forks_of_several_threads_while_it_is_asked(tmp_path: Path):
    script = f"import os, sys, threading, torch\n{FORKS}"
    script += "threads = [threading.Thread(target=fork, args=(25,)) for _ in range(6)]\n"
    script += "for one in threads: one.start()\nfor one in threads: one.join()\n"
    with worker(tmp_path, script + IDLE) as one:
        is_over = threading.Event()
        answers = []

        def ask() -> None:
            while not is_over.is_set():
                with suppress(OSError):  # a fork came before the question
                    answers.append(answer_of(one.pid, seconds=0.01))

        asking = threading.Thread(target=ask)
        asking.start()
        assert one.line() == "ready"
        is_over.set()
        asking.join()
        assert answers
        answer_of(one.pid)
        assert one.ends() == (0, "")


def test_after_an_answer_that_nobody_took_another_begins(tmp_path: Path):
    """One that is too long for the socket: the fork does not wait for that for ever."""
    deep = "def deep(n):\n    return deep(n - 1) if n else sys.stdin.readline()\n"
    threads = "".join(
        f"def {'x' * 5000}_{i}():\n    os.write(1, b'there\\n')\n    threading.Event().wait()\n"
        f"threading.Thread(target={'x' * 5000}_{i}, daemon=True).start()\n"
        for i in range(100)
    )
    script = f"import os, sys, threading, torch\n{deep}{FORKS}{threads}os.write(1, b'ready\\n')\n"
    script += "deep(3)\nfork(3)\nos.write(1, b'forked\\n')\nsys.stdin.read()\n"
    with worker(tmp_path, script) as one:
        while one.line() != "ready":
            pass
        not_taken = asked.Question(one.pid, begin_of(one.pid))
        time.sleep(0.3)
        one.tell()
        while (line := one.line()) != "forked":
            assert line == "there"
        not_taken.close()
        assert len(answer_of(one.pid).threads) > 400_000
        assert one.ends() == (0, "")


def test_a_signal_that_the_script_waits_for_comes_to_it(tmp_path: Path):
    """Also one that it blocks after torch is there, to take it; here by its first thread."""
    script = (
        "import signal, sys, torch\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
    )
    script += (
        "print('waits', flush=True)\nprint(int(signal.sigwait([signal.SIGUSR1])), flush=True)\n"
    )
    with worker(tmp_path, script + IDLE) as one:
        assert one.line() == "waits"
        os.kill(one.pid, signal.SIGUSR1)
        assert one.line() == str(int(signal.SIGUSR1))
        assert one.line() == "ready"
        answer_of(one.pid)
        assert one.ends() == (0, "")


def test_where_no_more_files_can_be_opened_it_answers_later(tmp_path: Path):
    script = """
import os, sys, torch, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = []
try:
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    print("full", flush=True)
sys.stdin.readline()
for file in files:
    os.close(file)
sys.stdin.read()
"""
    with worker(tmp_path, script) as one:
        assert one.line() == "full"
        until(lambda: listens(one.pid), "it listens still")
        early = asked.Question(one.pid, begin_of(one.pid))
        one.tell()
        assert heard(early).threads
        assert one.ends() == (0, "")
