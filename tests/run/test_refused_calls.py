"""A system call that is refused costs what it gives: a feature, or the launch in one line.

Each call that a way of launching makes is refused to it with the two errnos that containers and old
kernels use. Then the launch does without, or it says what is refused, with status 71 (or 2); nobody
is left. Which way makes which calls is a table, that strace(1) checks.
"""

import errno
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
require_programs("strace", package="strace")

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

# Refused one of these, Python itself does not start.
PYTHON = "print(1)"
OF_PYTHON = [
    *("read", "write", "close", "mmap", "mprotect", "pread64", "execve", "fcntl", "arch_prctl"),
    *("futex", "getdents64", "openat", "newfstatat"),
]
# And without this no program survives a signal that it handles.
HANDLES = "import os, signal; signal.signal(10, lambda *_: 0); os.kill(os.getpid(), 10); print(1)"
OF_HANDLERS = ["rt_sigreturn"]

# What each makes, as strace(1) tells it.
EVERY_PROGRAM = {
    *("access", "brk", "getcwd", "getpid", "getrandom", "gettid", "ioctl", "lseek", "munmap"),
    *("prlimit64", "readlink", "rseq", "rt_sigaction", "sched_getaffinity", "set_robust_list"),
    *("set_tid_address", "sysinfo", "uname", *OF_PYTHON),
}
EVERY_LAUNCH = EVERY_PROGRAM | {
    *("bind", "clone", "epoll_create1", "epoll_ctl", "epoll_wait", "exit_group", "geteuid"),
    *("getpgrp", "getppid", "kill", "listen", "mkdir", "pidfd_open", "pipe2", "poll", "prctl"),
    *("rmdir", "rt_sigprocmask", "rt_sigtimedwait", "sched_setaffinity", "setitimer"),
    *("setsockopt", "socket", "wait4", "waitid", *OF_HANDLERS),
}
TWO_WORKERS = EVERY_LAUNCH | {"dup2", "setsid"}
LASTING = TWO_WORKERS | {"ftruncate", "memfd_create", "pwrite64"}
MADE = {
    "one worker": EVERY_LAUNCH | {"setpgid"},
    "two workers": TWO_WORKERS,
    "one that fails": EVERY_LAUNCH | {"setpgid"},
    "a restart": TWO_WORKERS | {"fsync", "rename", "unlink"},
    "files": TWO_WORKERS | {"unlink"},
    "it lasts": LASTING,
    "a hang": LASTING | {"clone3", "connect", "pidfd_send_signal"},
    "a task": EVERY_PROGRAM | {"getppid", "poll", "rt_sigprocmask", "sched_setaffinity"},
    "explain": EVERY_PROGRAM
    | {"bind", "exit_group", "getppid", "listen", "rt_sigprocmask", "setsockopt", "socket"},
    "record": LASTING
    | {"clock_nanosleep", "clone3", "connect", "getpriority", "pselect6", "setpgid"}
    | {"setpriority"},
    "preload": TWO_WORKERS
    | {"getsid", "getsockname", "pidfd_send_signal", "recvfrom", "recvmsg", "sendmsg", "sendto"}
    | {"clock_nanosleep", "socketpair"},
}
OF_TWO_NODES = TWO_WORKERS - {"setsid"} | {
    *("accept4", "connect", "getpeername", "getsockname", "getsockopt", "recvfrom", "sendto"),
    *("setpgid", "shutdown"),
}
OF_TOP = EVERY_PROGRAM | {
    *("clock_nanosleep", "connect", "epoll_create1", "exit_group", "geteuid", "pipe2", "socket"),
    "waitid",  # of a process, anybody's, that ended since it was listed
}
# The programs beside a launch, which start nobody.
BESIDE = {
    "help": ("spawnlaunch", "--help"),
    "completion": ("spawnlaunch", "--completion", "bash"),
    "scripts": ("spawnlaunch.scripts",),
    "report": ("spawnlaunch.report", "record"),
    # Of no launch: others may run here, and what is asked of their ranks depends on them.
    "top": ("spawnlaunch.top", "--once", "a launch that is not there"),
}
OF_BESIDE = {
    **dict.fromkeys(BESIDE, EVERY_PROGRAM | {"epoll_create1", "exit_group", "rt_sigprocmask"}),
    "top": OF_TOP,
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
OF_LIBRARY = LASTING | {
    *("clone3", "close_range", "dup3", "fsync", "rename", "sigaltstack", "unlink", "unlinkat"),
    "vfork",
}
# Made by other versions of Python, of the C library and of the kernel.
ELSEWHERE = NUMBERS.keys() - set.union(*MADE.values(), OF_TWO_NODES, OF_TOP, OF_LIBRARY)


def refused(made: set[str]) -> list[str]:
    return [name for name in NUMBERS if name in made and name not in (*OF_PYTHON, *OF_HANDLERS)]


# Refused by a container that somebody has seen, or what costs a feature.
HANDFUL = [
    ("memfd_create", errno.EPERM, "it lasts"),
    ("epoll_create1", errno.ENOSYS, "two workers"),
    ("waitid", errno.ENOSYS, "two workers"),
    ("setsid", errno.EPERM, "two workers"),
    ("sched_getaffinity", errno.EPERM, "two workers"),
    ("prctl", errno.EPERM, "two workers"),
    ("pidfd_open", errno.ENOSYS, "a restart"),
    ("socket", errno.EPERM, "one worker"),
    ("rt_sigtimedwait", errno.EPERM, "one worker"),
    ("wait4", errno.ENOSYS, "two workers"),
    ("prctl", errno.EPERM, "preload"),
    ("sendmsg", errno.ENOSYS, "preload"),
]


def matrix() -> list[object]:
    rows = [(name, way) for way in WAYS for name in refused(MADE[way])]
    rows += [(name, "two workers") for name in ELSEWHERE]
    every = [(name, number, way) for name, way in sorted(rows) for number in ERRNOS]
    rest = [each for each in every if each not in HANDFUL]
    return mostly_full([*HANDFUL, *rest], len(HANDFUL))


@pytest.mark.parametrize(("name", "number", "way"), matrix())
def test_a_refused_call_costs_what_it_gives(name: str, number: int, way: str, tmp_path: Path):
    words, environ, status, count = WAYS[way]
    refuse = refuser({name: number})
    os.chdir(tmp_path)
    with launched(*words, directory=tmp_path, environ=environ, preexec=refuse) as one:
        ended = one.status()
    check_words(one.stderr)
    if ended == status:
        assert one.output.count(b"hi") >= count, one.stderr
    else:
        assert ended in (os.EX_OSERR, 2), one.stderr
        assert os.strerror(number) in one.stderr or ended == 2
        assert one.stderr.startswith("spawnlaunch: "), one.stderr


def check_words(text: str) -> None:
    assert "Traceback" not in text
    assert "fault of spawnlaunch" not in text
    assert "refuses a call" not in text


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("rt_sigtimedwait", "sigtimedwait"),
        *((name, name) for name in ("getpid", "geteuid", "socket", "bind", "listen")),
    ],
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


@pytest.mark.parametrize("way", ["two workers", "preload"])
@pytest.mark.parametrize("option", [PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER])
def test_a_sandbox_that_knows_some_of_prctl_launches_all_the_same(
    option: int, way: str, tmp_path: Path
):
    words, *_ = WAYS[way]
    refuse = refuser({("prctl", option): errno.EINVAL})
    with launched(*words, directory=tmp_path, preexec=refuse) as one:
        assert one.status() == 0, one.stderr
        assert one.output.count(b"hi") == 2
        assert not one.stderr


def test_a_sandbox_without_unix_sockets_launches_all_the_same(tmp_path: Path):
    refuse = refuser({("socket", socket.AF_UNIX): errno.EAFNOSUPPORT})
    with launched("--nproc", 2, *HI, directory=tmp_path, preexec=refuse) as one:
        assert one.status() == 0, one.stderr
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
    [
        ("fsync", errno.EPERM, True),
        ("fsync", errno.ENOSYS, False),
        ("rename", errno.EBUSY, False),  # of a file that is mounted by itself
        ("fchmod", errno.EPERM, False),
    ],
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


@pytest.mark.parametrize("number", ERRNOS)
def test_a_signal_by_number_where_pidfds_cannot_signal(number: int, tmp_path: Path):
    refuse = refuser({"pidfd_send_signal": number})
    script = ("--no-python", "sh", "-c", "setsid sleep 600 & echo ready; exit 4")
    with launched("--nproc", 2, *script, directory=tmp_path, preexec=refuse) as one:
        assert one.status() == 4, one.stderr
        assert one.all_gone()


@pytest.mark.full
@pytest.mark.parametrize("number", ERRNOS)
@pytest.mark.parametrize("name", refused(OF_TWO_NODES))
def test_launchers_of_two_nodes_end_together(name: str, number: int, tmp_path: Path):
    place, environ = (
        ("--rdzv-endpoint", f"127.0.0.1:{free_port()}"),
        clean_environ(**ON_LOOPBACK, TMPDIR=str(tmp_path), OF_THIS_TEST=str(tmp_path)),
    )
    command = [str(word) for word in (*LAUNCHER, *place, *GANG, *LASTS)]
    with nothing_left_behind(str(tmp_path)):
        both = [
            subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, preexec_fn=refuser({name: number}),
            )
            for _ in range(2)
        ]  # fmt: skip
        said = [one.communicate(timeout=PATIENCE_S * 3)[1] for one in both]
    for one, text in zip(both, said, strict=True):
        check_words(text)
        assert one.returncode in (0, 2, os.EX_OSERR, os.EX_UNAVAILABLE), text
    assert not list(tmp_path.glob("spawnlaunch-*"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the record of a launch."""
    directory = tmp_path_factory.mktemp("recorded")
    done = run(*LAUNCHER, "--record", directory / "record", "--no-python", "true")
    assert done.returncode == 0, done.stderr
    return directory


@pytest.mark.parametrize(
    ("program", "name", "number"),
    mostly_full(
        sorted(
            ((program, name, number) for program in BESIDE
             for name in refused(OF_BESIDE[program]) for number in ERRNOS),
            key=lambda row: row[1] != "getcwd",
        ),
        2 * len(BESIDE),
    ),
)  # fmt: skip
def test_what_starts_nobody_does_without_or_says_it(
    program: str, name: str, number: int, recorded: Path
):
    words = (sys.executable, "-m", *BESIDE[program])
    done = run(*words, preexec_fn=refuser({name: number}), cwd=recorded)
    check_words(done.stderr)
    assert done.returncode in (0, os.EX_OSERR, os.EX_IOERR), done.stderr


@pytest.mark.parametrize(
    ("name", "number"),
    mostly_full(
        [
            ("setsid", errno.EPERM),
            *((name, each) for name in refused(OF_LIBRARY) for each in ERRNOS),
        ]
    ),
)
def test_a_function_is_called_or_the_caller_hears_why_not(name: str, number: int, tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(LIBRARY)
    environ = clean_environ(TMPDIR=str(tmp_path), OF_THIS_TEST=str(tmp_path))
    with nothing_left_behind(str(tmp_path)):
        refuse = refuser({name: number})
        done = run(sys.executable, script, environ=environ, preexec_fn=refuse, cwd=tmp_path)
    assert "fault of spawnlaunch" not in done.stderr + done.stdout
    if name == "setsid":
        assert done.stdout == "[2, 2]\n", done.stderr


@pytest.mark.full
@pytest.mark.parametrize("number", ERRNOS)
@pytest.mark.parametrize(
    ("name", "code"),
    [*((name, PYTHON) for name in OF_PYTHON), *((name, HANDLES) for name in OF_HANDLERS)],
)
def test_without_these_python_itself_does_not_run(name: str, code: str, number: int):
    try:
        done = run(sys.executable, "-c", code, preexec_fn=refuser({name: number}))
    except OSError as error:
        runs = (name, error.errno) != ("execve", number)
    else:
        runs = (done.returncode, done.stdout) == (0, "1\n")
    assert not runs


def calls_of(command: list[object], environ: dict[str, str], directory: Path) -> set[str]:
    """The calls of ours: of workers, which are no Python, what they do after their exec is not."""
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
    return found


def check_calls(made: set[str], *command: object, environ: dict[str, str], directory: Path):
    """Twice, as a call may be made only by chance."""
    once, twice = (calls_of([*command], environ, directory) for _ in range(2))
    assert once | twice <= NUMBERS.keys()
    assert once & twice <= made | ELSEWHERE


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_every_call_of_a_launch_is_in_the_list(way: str, tmp_path: Path):
    words, environ, *_ = WAYS[way]
    check_calls(MADE[way], *LAUNCHER, *words, environ=environ, directory=tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("program", BESIDE)
def test_every_call_of_what_starts_nobody_is_in_the_list(program: str, recorded: Path):
    words = (sys.executable, "-m", *BESIDE[program])
    check_calls(OF_BESIDE[program], *words, environ={}, directory=recorded)


@pytest.mark.full
def test_every_call_of_the_library_is_in_the_list(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(LIBRARY)
    check_calls(OF_LIBRARY, sys.executable, script, environ={}, directory=tmp_path)


@pytest.mark.full
def test_every_call_of_two_nodes_is_in_the_list(tmp_path: Path):
    place = ("--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    script = " ".join(map(str, (*LAUNCHER, *place, *GANG, "--no-python", "true")))
    both = f"{script} & {script} & wait"
    check_calls(OF_TWO_NODES, "sh", "-c", both, environ=ON_LOOPBACK, directory=tmp_path)
