"""A system call that is refused costs what it gives: a feature, or the launch in one line.

Each call that a way of launching makes, as strace(1) shows it, is refused to it with the two errnos
that containers and old kernels use. Then the launch does without, or it says what is refused, with
status 71 (or 2); nobody is left. Launches of several processes are refused calls in tests/machine
(--refuse) as well.
"""

import errno
import itertools
import json
import os
import platform
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from spawnlaunch.run.refused import words as told_in_words
from tests.support.launching import LAUNCHER, SLURM_TASK, WORKERS, clean_environ, run
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.processes import nothing_left_behind
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
    "one worker": (("--nproc", 1, *HI), {}, 0, 1),
    "two workers": (("--nproc", 2, *HI), {}, 0, 2),
    "one that fails": (("--nproc", 1, *FAILS), {}, 3, 1),
    "a restart": (("--nproc", 2, "--max-restarts", 1, "--result", "result", *FAILS), {}, 3, 0),
    "files": (("--nproc", 2, "--tee", 3, "--log-dir", "logs", *HI), {}, 0, 2),
    "it lasts": (("--nproc", 2, *LASTS), {}, 0, 2),
    "a hang": (("--nproc", 2, "--hang-timeout", 1, *LASTS), {}, 0, 2),
    "a task": (HI, SLURM_TASK, 0, 1),
    "explain": (("--explain", *HI), {}, 0, 0),
    "record": (("--nproc", 2, "--record", "record", *LASTS), {}, 0, 2),
    "preload": (("--nproc", 2, "--preload", "decimal", WORKERS / "hi.py"), {}, 0, 2),
}
GANG = ("--nnodes", 2, "--nproc", 1, "--rdzv-backend", "c10d", "--rdzv-conf", "join_timeout=20")
ON_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
# The programs beside a launch, which start nobody.
BESIDE = {
    "help": ("spawnlaunch", "--help"),
    "completion": ("spawnlaunch", "--completion", "bash"),
    "scripts": ("spawnlaunch.scripts",),
    "report": ("spawnlaunch.report", "record"),
    # Of no launch: others may run here, and what is asked of their ranks depends on them.
    "top": ("spawnlaunch.top", "--once", "a launch that is not there"),
}
LIBRARY = """
import spawnlaunch

def once_more(number):
    return number + 1

if __name__ == "__main__":
    try:
        print(spawnlaunch.launch(once_more, 1, nproc=2))
    except (spawnlaunch.UsageError, spawnlaunch.LaunchError, OSError) as error:
        print("cannot:", error)
"""
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
    ("sendmsg", errno.ENOSYS, "preload"),
    ("waitid", errno.ENOSYS, "two workers"),
    ("sched_getaffinity", errno.EPERM, "two workers"),
    ("prctl", errno.EPERM, "two workers"),
    ("socket", errno.EPERM, "one worker"),
    ("rt_sigtimedwait", errno.EPERM, "one worker"),
    ("prctl", errno.EPERM, "preload"),
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


@pytest.mark.parametrize(("name", "number", "way"), mostly_full(HANDFUL, 5))
def test_a_refused_call_costs_what_it_gives(name, number, way, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_refused(name, number, way, tmp_path)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
def test_so_does_each_call_that_a_launch_makes(way: str, tmp_path: Path, monkeypatch):
    words, environ, *_ = WAYS[way]
    every = calls_of(*LAUNCHER, *words, environ=environ, directory=tmp_path)
    for number, (name, error) in enumerate(itertools.product(every, ERRNOS)):
        place = tmp_path / f"{number}-{name}-{errno.errorcode[error]}"
        place.mkdir()
        monkeypatch.chdir(place)
        check_refused(name, error, way, place)


@pytest.mark.parametrize(
    ("name", "ours"), mostly_full([("rt_sigtimedwait", "sigtimedwait"), ("listen", "listen")])
)
def test_the_line_names_the_call_and_what_to_do(name: str, ours: str, tmp_path: Path):
    refuse = refuser({name: errno.EPERM})
    with launched("--nproc", 2, *HI, directory=tmp_path, preexec=refuse) as one:
        assert one.status() == os.EX_OSERR
        line = f"the system refuses {ours}: Operation not permitted; a container's seccomp"
        assert line in one.stderr
        assert one.stderr.count("\n") == 1


def test_a_module_of_ours_that_cannot_be_read_is_said_in_one_line():
    few = textwrap.dedent("""
        import resource, runpy, sys
        def fills(event, arguments):
            if event == "import" and arguments[0] == "spawnlaunch.walk":
                _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        sys.addaudithook(fills)
        runpy.run_module("spawnlaunch", run_name="__main__", alter_sys=True)
    """)
    done = run(sys.executable, "-c", few, "--no-python", "true")
    check_words(done.stderr)
    assert done.returncode == os.EX_OSERR
    assert os.strerror(errno.EMFILE) in done.stderr
    assert done.stderr.count("\n") == 1


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
    assert told_in_words(raised.value).startswith("the system refuses rmdir: ")
    assert ": /proc/self/no; " in told_in_words(raised.value)
    unraised = OSError(errno.EPERM, "not permitted")
    assert told_in_words(unraised).startswith("the system refuses a call: not permitted; ")
    unraised.filename = "/a/file"
    assert told_in_words(unraised).startswith("the system refuses /a/file: not permitted; ")


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


@pytest.mark.parametrize("number", mostly_full(ERRNOS))
def test_a_signal_by_number_where_pidfds_cannot_signal(number: int, tmp_path: Path):
    refuse = refuser({"pidfd_send_signal": number})
    script = ("--no-python", "sh", "-c", "setsid sleep 600 & echo ready; exit 4")
    with launched("--nproc", 2, *script, directory=tmp_path, preexec=refuse) as one:
        assert one.status() == 4, one.stderr


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", ERRNOS)
def test_launchers_of_two_nodes_end_together(number: int, tmp_path: Path):
    place = ("--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    both = " ".join(map(str, (*LAUNCHER, *place, *GANG, "--no-python", "true")))
    names = calls_of("sh", "-c", f"{both} & {both}; wait", environ=ON_LOOPBACK, directory=tmp_path)
    for name in names:
        scratch = tmp_path / name
        scratch.mkdir()
        environ = clean_environ(**ON_LOOPBACK, TMPDIR=str(scratch), OF_THIS_TEST=str(scratch))
        place = ("--rdzv-endpoint", f"127.0.0.1:{free_port()}")
        with nothing_left_behind(str(scratch)):
            launchers = [
                subprocess.Popen(
                    [str(word) for word in (*LAUNCHER, *place, *GANG, *LASTS)], env=environ,
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    text=True, preexec_fn=refuser({name: number}),
                )
                for _ in range(2)
            ]  # fmt: skip
            said = [one.communicate(timeout=PATIENCE_S * 3)[1] for one in launchers]
        for one, text in zip(launchers, said, strict=True):
            check_words(text)
            assert one.returncode in (0, 2, os.EX_OSERR, os.EX_UNAVAILABLE), (name, text)
        assert not list(scratch.glob("spawnlaunch-*")), name


def record(directory: Path) -> None:
    """Leave the record of a launch there."""
    done = run(*LAUNCHER, "--record", directory / "record", "--no-python", "true")
    assert done.returncode == 0, done.stderr


def check_beside(program: str, name: str, number: int, directory: Path) -> None:
    words = (sys.executable, "-m", *BESIDE[program])
    done = run(*words, preexec_fn=refuser({name: number}), cwd=directory)
    check_words(done.stderr)
    assert done.returncode in (0, os.EX_OSERR, os.EX_IOERR), (name, done.stderr)


def test_what_starts_nobody_does_without_or_says_it(tmp_path: Path):
    record(tmp_path)
    for program in ("report", "top"):
        check_beside(program, "getcwd", errno.EPERM, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("program", BESIDE)
def test_so_it_does_without_each_call_that_it_makes(program: str, tmp_path: Path):
    record(tmp_path)
    words = (sys.executable, "-m", *BESIDE[program])
    every = calls_of(*words, environ={}, directory=tmp_path)
    for name, number in itertools.product(every, ERRNOS):
        check_beside(program, name, number, tmp_path)


def check_library(name: str, number: int, directory: Path) -> str:
    environ = clean_environ(TMPDIR=str(directory), OF_THIS_TEST=str(directory))
    script, refuse = directory / "script.py", refuser({name: number})
    script.write_text(LIBRARY)
    with nothing_left_behind(str(directory)):
        done = run(sys.executable, script, environ=environ, preexec_fn=refuse, cwd=directory)
    assert "fault of spawnlaunch" not in done.stderr + done.stdout, name
    return done.stdout


def test_a_function_is_called_though_a_call_is_refused(tmp_path: Path):
    assert check_library("setsid", errno.EPERM, tmp_path) == "[2, 2]\n"


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", ERRNOS)
def test_a_function_is_called_or_the_caller_hears_why_not(number: int, tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(LIBRARY)
    for name in calls_of(sys.executable, script, environ={}, directory=tmp_path):
        check_library(name, number, tmp_path)
