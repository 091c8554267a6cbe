"""A system call that is refused costs what it gives: a feature, or the launch in one line.

Each call that a way of launching makes, as strace(1) shows it, is refused to it with the two errnos
that containers and old kernels use. Then the launch does without, or it says what is refused, with
status 71 (or 2); nobody is left. Launches of several processes are refused calls in tests/machine
(--refuse).
"""

import errno
import itertools
import json
import os
import platform
import re
import socket
import sys
from pathlib import Path

import pytest

from spawnlaunch.base.say import describe_refusal
from tests.support.launching import LAUNCHER, SLURM_TASK, WORKERS, clean_environ, run
from tests.support.matrix import mostly_full
from tests.support.refusing import NUMBERS, refuser
from tests.support.required import require_programs
from tests.support.watching import launched

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the numbers of calls here are those of x86_64"
)

ERRNOS = (errno.EPERM, errno.ENOSYS)
HI, FAILS = ("--no-python", "sh", "-c", "echo hi"), ("--no-python", "sh", "-c", "echo hi; exit 3")
# It waits by futex, which Python itself cannot do without; a shell's sleep needs other calls.
SAYS_AND_WAITS = """
import _thread
print("hi", flush=True)
lock = _thread.allocate_lock()
lock.acquire()
lock.acquire(timeout=1.5)
"""
LASTS = ("--no-python", sys.executable, "-ISc", SAYS_AND_WAITS)

# Words, environment, exit status, and how often "hi" is said.
WAYS = {
    "two workers": (("--nproc", 2, *HI), {}, 0, 2),
    "a restart": (("--nproc", 2, "--max-restarts", 1, "--result", "result", *FAILS), {}, 3, 0),
    "it lasts": (("--nproc", 2, *LASTS), {}, 0, 2),
    "a task": (HI, SLURM_TASK, 0, 1),
    "explain": (("--explain", *HI), {}, 0, 0),
    "record": (("--nproc", 2, "--record", "record", *LASTS), {}, 0, 2),
    "preload": (("--nproc", 2, "--preload", "decimal", WORKERS / "hi.py"), {}, 0, 2),
}
# Others are played in tests/machine.
NOT_PLAYED = {"a task": "full", "explain": "nightly", "record": "nightly", "preload": "nightly"}
# Refused one of these, Python itself does not start, or does not survive a signal that it handles.
OF_PYTHON = {
    *("read", "write", "close", "mmap", "mprotect", "pread64", "execve", "fcntl", "arch_prctl"),
    *("futex", "getdents64", "openat", "newfstatat", "rt_sigreturn"),
}

# Refused by a container that somebody has seen, or what costs a feature.
HANDFUL = [
    ("memfd_create", errno.EPERM, "it lasts"),
    ("epoll_create1", errno.ENOSYS, "two workers"),
    ("setsid", errno.EPERM, "two workers"),
    ("pidfd_open", errno.ENOSYS, "a restart"),
    ("wait4", errno.ENOSYS, "two workers"),
]


def calls_of(*command: object, environ: dict[str, str], directory: Path) -> list[str]:
    """What is refused to a command: its calls, but of workers, which are no Python, their own."""
    require_programs("strace", package="strace")
    trace = directory / "trace"
    words = ("strace", "-f", "-qq", "-e", "signal=none", "-o", trace, *command)
    run(*words, environ=clean_environ(**environ), cwd=directory)
    found, others = set[str](), set[str]()
    for line in trace.read_text().splitlines():
        pid, call = line.split(maxsplit=1)
        if call.startswith("execve(") and "python" not in call.partition(",")[0]:
            others.add(pid)
        elif pid not in others and (name := re.match(r"\w+(?=\()", call)):
            found.add(name[0])
    assert found <= NUMBERS.keys()
    return sorted(found - OF_PYTHON)


def check_words(text: str) -> None:
    assert "Traceback" not in text
    assert "fault of spawnlaunch" not in text
    assert "refuses a call" not in text


def check_refused(name: str, number: int, way: str, directory: Path) -> None:
    words, environ, status, count = WAYS[way]
    refuse = refuser({name: number})
    with launched(*words, directory=directory, environ=environ, preexec=refuse) as one:
        ended = one.status()
    check_words(one.stderr)
    if ended == status:
        assert one.output.count(b"hi") >= count, one.stderr
    else:
        assert ended in (os.EX_OSERR, 2), one.stderr
        assert os.strerror(number) in one.stderr or ended == 2
        assert one.stderr.startswith("spawnlaunch: "), one.stderr


@pytest.mark.parametrize(("name", "number", "way"), HANDFUL)
def test_a_refused_call_costs_what_it_gives(name, number, way, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_refused(name, number, way, tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=getattr(pytest.mark, NOT_PLAYED[way])) for way in NOT_PLAYED]
)
def test_so_does_each_call_that_a_launch_makes(way: str, tmp_path: Path, monkeypatch):
    words, environ, *_ = WAYS[way]
    every = calls_of(*LAUNCHER, *words, environ=environ, directory=tmp_path)
    for number, (name, error) in enumerate(itertools.product(every, ERRNOS)):
        place = tmp_path / f"{number}-{name}-{errno.errorcode[error]}"
        place.mkdir()
        monkeypatch.chdir(place)
        check_refused(name, error, way, place)


@pytest.mark.parametrize(
    ("name", "ours"), mostly_full([("getppid", "getppid"), ("listen", "listen")])
)
def test_the_line_names_the_call_and_what_to_do(name: str, ours: str, tmp_path: Path):
    refuse = refuser({name: errno.EPERM})
    with launched("--nproc", 2, *HI, directory=tmp_path, preexec=refuse) as one:
        assert one.status() == os.EX_OSERR
        line = f"the system refuses {ours}: Operation not permitted; a container's seccomp"
        assert line in one.stderr
        assert one.stderr.count("\n") == 1


PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
PARTS = [
    ("preload", ("prctl", PR_SET_PDEATHSIG), errno.EINVAL),
    ("two workers", ("prctl", PR_SET_CHILD_SUBREAPER), errno.EINVAL),
    ("two workers", ("socket", socket.AF_UNIX), errno.EAFNOSUPPORT),
    ("two workers", ("prctl", PR_SET_PDEATHSIG), errno.EINVAL),
    ("two workers", ("prctl", PR_SET_NAME), errno.EINVAL),
    ("preload", ("prctl", PR_SET_NAME), errno.EINVAL),
    ("preload", ("prctl", PR_SET_CHILD_SUBREAPER), errno.EINVAL),
]


@pytest.mark.parametrize(("way", "call", "number"), mostly_full(PARTS, 3))
def test_a_sandbox_that_knows_a_call_in_part_launches_all_the_same(
    way: str, call: tuple[str, int], number: int, tmp_path: Path
):
    words, _, status, count = WAYS[way]
    with launched(*words, directory=tmp_path, preexec=refuser({call: number})) as one:
        assert one.status() == status, one.stderr
        assert one.output.count(b"hi") == count
        assert not one.stderr


def test_of_an_error_the_call_is_named_or_the_file_or_neither():
    with pytest.raises(OSError, match="No such file") as raised:
        os.rmdir("/proc/self/no")
    assert describe_refusal(raised.value).startswith("the system refuses rmdir: ")
    assert ": /proc/self/no; " in describe_refusal(raised.value)
    unraised = OSError(errno.EPERM, "not permitted")
    assert describe_refusal(unraised).startswith("the system refuses a call: not permitted; ")
    unraised.filename = "/a/file"
    assert describe_refusal(unraised).startswith("the system refuses /a/file: not permitted; ")


@pytest.mark.parametrize(
    ("name", "number", "is_new"),
    mostly_full(
        [
            ("fsync", errno.EPERM, True),
            ("fsync", errno.ENOSYS, False),
            ("rename", errno.EBUSY, False),  # of a file that is mounted by itself
            ("fchmod", errno.EPERM, False),
        ],
        2,
    ),
)
def test_a_result_is_written_all_the_same(name: str, number: int, is_new: bool, tmp_path: Path):
    result = tmp_path / "result.json"
    if not is_new:
        result.write_text("an older one, which is much longer" * 1000)
    words, refuse = ("--nproc", 2, "--result", result), refuser({name: number})
    with launched(*words, *FAILS, directory=tmp_path, preexec=refuse) as one:
        assert one.status() == 3, one.stderr
    assert json.loads(result.read_text())["status"] == 3
    assert not list(tmp_path.glob(".spawnlaunch-*"))
