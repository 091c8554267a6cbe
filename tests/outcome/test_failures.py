"""A worker fails: who is named, what is printed last, and which files tell of it."""

import json
import os
import re
import signal
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from spawnlaunch.node.cgroup import MemoryKills
from spawnlaunch.outcome.endings import out_of_memory
from tests.support.launching import HOST, NEW_NAME, WORKERS, clean_environ, launch
from tests.support.watching import KILLED, launched

FAIL = WORKERS / "fail.py"


def script(directory: Path, text: str) -> Path:
    path = directory / "script.py"
    path.write_text("import os, signal, sys, time\nrank = os.environ['RANK']\n"
                    f"here = {str(directory)!r}\n"
                    + textwrap.dedent(text))  # fmt: skip
    return path


def test_a_failure_is_reported_by_lines_and_in_a_file_for_every_rank(tmp_path: Path):
    path = tmp_path / "result.json"
    words = ("--nproc", 3, "--quiet", "--result", path, "--rdzv-id", "me", FAIL, 1, "exit", 7)
    done = launch(*words)
    first, named, *others = done.stderr.splitlines()[-4:]
    assert done.returncode == 7
    assert f"rank 1 on {HOST} (pid " in first
    assert "status 7; stopping ranks 0,2" in first
    assert "failed first: rank 1 on " in named
    for rank, line in zip((0, 2), others, strict=True):
        assert f"rank {rank}" in line
        assert "was stopped by the launcher" in line
    result = json.loads(path.read_text())
    zero, one, _ = ranks = result.pop("ranks")
    del result["host"]
    assert re.match(r"rank 1 on \S+ \(pid \d+\) exited with status 7 after ", result.pop("why"))
    assert result == {
        "status": 7, "cause": "failure", "signal": None, "first_failure": 1, "run_id": "me",
        "oom": None, "restarts": [],
    }  # fmt: skip
    shown = ("rank", "status", "signal", "told")
    assert [zero[name] for name in shown] == [0, 128 + signal.SIGTERM, "SIGTERM", "SIGTERM"]
    assert [one[name] for name in shown] == [1, 7, None, None]
    assert one["seconds"] >= 0.3
    for name in ("seconds", "user_seconds", "system_seconds"):  # in milliseconds, and no finer
        assert all(rank[name] == round(rank[name], 3) for rank in ranks)
    assert list(tmp_path.iterdir()) == [path]


def test_a_single_worker_that_fails_is_reported_in_one_line_and_filed_for_the_user(tmp_path: Path):
    error_file = tmp_path / "error.json"
    environ = clean_environ(TORCHELASTIC_ERROR_FILE=str(error_file))
    done = launch("--nproc", 1, "--quiet", FAIL, 0, "signal", 11, environ=environ)
    assert done.returncode == 139
    (line,) = done.stderr.splitlines()
    said = r"rank 0 on \S+ \(pid \d+\) died of SIGSEGV after \d+\.\d s"
    assert re.match(f"spawnlaunch: failed: {said}", line)
    message = json.loads(error_file.read_text())["message"]
    assert re.match(said, message["message"])
    assert message["errorCode"] == 139


def test_the_last_lines_of_the_first_failure_come_last(tmp_path: Path):
    text = """
        if rank == '1':
            print('\\n'.join(f'line {i}' for i in range(100)), file=sys.stderr)
            while not os.path.exists(here + '/ready'): time.sleep(0.01)
            raise ValueError('the very reason')
        signal.signal(signal.SIGTERM, lambda *_: sys.exit('rank 0 ends too'))
        open(here + '/ready', 'w')
        time.sleep(600)
    """
    kept = ("--log-dir", tmp_path, "--redirects", 2)
    for flags in ((), kept, ("--local-ranks-filter", 0)):
        done = launch("--nproc", 2, *flags, script(tmp_path, text))
        _, report = done.stderr.split(f"the last lines of rank 1 on {HOST}:\n")
        lines = report.splitlines()
        assert done.returncode == 1
        if flags == kept:
            assert lines.pop().endswith("/1/stderr.log")
        assert lines[-1] == "ValueError: the very reason"
        assert "Traceback (most recent call last):" in lines
        assert "line 99" in lines
        assert "line 10" not in lines


# Of the worker that fails: how it does, and whether the launcher's stderr has all of that last.
WAYS_TO_FAIL = {
    "raises": ("raise ValueError('the very reason')", 1),
    "records": (
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    raise ValueError('the very reason')\nmain()",
        1,
    ),
    "chains": (
        "try:\n    int('x')\nexcept ValueError as error:\n"
        "    raise RuntimeError('the very reason') from error",
        1,
    ),
    "says more to stdout": (
        "import atexit; atexit.register(print, 'more')\nraise ValueError('the very reason')",
        2,
    ),
}


@pytest.mark.parametrize("way", WAYS_TO_FAIL)
@pytest.mark.parametrize("nproc", [1, 2])
def test_a_traceback_that_was_shown_last_is_not_shown_again(way: str, nproc: int, tmp_path: Path):
    fails, times = WAYS_TO_FAIL[way]
    path = tmp_path / "script.py"
    path.write_text(f"import os, time\nif os.environ['RANK'] == '1': time.sleep(600)\n{fails}\n")
    with launched("--nproc", nproc, path, directory=tmp_path, preexec=stdout_as_stderr) as one:
        assert one.status() == 1
    if nproc == 1:  # it writes there by itself, and only what `record` has kept is known
        times = 1 + (way == "records")
    assert one.stderr.count("Error: the very reason\n") == times, one.stderr


def stdout_as_stderr() -> None:
    os.dup2(2, 1)


KEEPING = {
    "--log-dir {0}": "{0}/me/attempt_1/1/stderr.log",
    "--log-dir {0} --redirects 3": "{0}/me/attempt_1/1/stderr.log",
    "--log-dir {0} --redirects 1:2": "{0}/me/attempt_1/1/stderr.log",
    "--log-dir {0} --redirects 1": "{0}/me/attempt_1/1/stdout.log",
    "--log-dir {0} --tee 3": "{0}/me/attempt_1/1/stderr.log",
    "--log-dir {0}/{{rank}}-{{restart}}": "{0}/1-1/stderr.log",
    "--log-dir {0} --redirects 0:3": "",  # another rank's
    "--log-dir /dev/null": "",
    "--quiet": "",
}


@pytest.mark.parametrize("flags", KEEPING)
def test_the_last_line_names_the_file_of_the_rank_that_failed(flags: str, tmp_path: Path):
    words = (*flags.format(tmp_path).split(), "--rdzv-id", "me", "--max-restarts", 1)
    done = launch("--nproc", 2, *words, script(tmp_path, "sys.exit('bad' if rank == '1' else 0)"))
    last, file = done.stderr.splitlines()[-1], KEEPING[flags].format(tmp_path)
    assert done.returncode == 1
    assert (" of rank 1 is in " in last) == bool(file), last
    assert re.sub(f"me-{NEW_NAME}", "me", last).endswith(file)
    assert not file or Path(last.rpartition(" is in ")[2]).exists()


def test_a_command_line_that_no_rank_takes_is_one_line(tmp_path: Path):
    text = "import argparse\nargparse.ArgumentParser().parse_args()\n"
    done = launch("--nproc", 3, "--quiet", "--bind", "none", script(tmp_path, text), "--no-such")
    ours = [line for line in done.stderr.splitlines() if line.startswith("spawnlaunch: ")]
    assert done.returncode == 2
    assert len(ours) == 1 or ours[1].startswith("spawnlaunch: the last lines of rank "), ours
    assert "exited with status 2" in ours[0]


def test_a_rank_that_fails_with_status_2_alone_is_told_of_at_once(tmp_path: Path):
    text = """
        if rank == '1':
            while not os.path.exists(here + '/ready'): time.sleep(0.01)
            sys.exit(2)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(here + '/ready', 'w')
        time.sleep(600)
    """
    done = launch("--nproc", 2, "--quiet", "--grace", 2, script(tmp_path, text))
    first, killed, *_ = done.stderr.splitlines()
    assert first.endswith("status 2; stopping rank 0")
    assert "rank 0 on" in killed


def test_a_failure_while_saving_is_named_after_a_signal(tmp_path: Path):
    text = """
        def save(*_):
            os._exit(0 if rank == '0' else 3)
        signal.signal(signal.SIGTERM, save)
        os.write(1, b'ready\\n')
        time.sleep(600)
    """
    with launched("--nproc", 2, script(tmp_path, text), directory=tmp_path) as running:
        running.read_until(2)
        running.send(signal.SIGTERM)
        assert running.status() == 128 + signal.SIGTERM
        last = running.stderr.splitlines()[-1]
        assert f"rank 1 on {HOST} (pid " in last
        assert "status 3 after SIGTERM from the" in last


MIB = 1 << 20


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of 200 MiB: v1's memory controller, or v2's, whichever this machine lets us have."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, limit = (v1, "memory.limit_in_bytes") if v1.is_dir() else (v2, "memory.max")
    group = root / f"spawnlaunch-test-{uuid.uuid4()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(200 * MIB))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"needs a memory cgroup of its own: {error}")
    yield group
    group.rmdir()


@pytest.mark.full
def test_a_worker_that_the_kernel_killed_for_want_of_memory_is_reported_as_such(
    cgroup: Path, tmp_path: Path
):
    def enter() -> None:
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    script = tmp_path / "eat.py"
    script.write_text(
        "import os, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    eaten = [bytearray(os.urandom(1 << 20)) for _ in range(1000)]\n"
        "time.sleep(600)\n"
    )
    result = tmp_path / "result.json"
    with launched(
        "--nproc", 2, "--result", result, script, directory=tmp_path, preexec=enter
    ) as launch:
        assert launch.status() == KILLED
        assert "failed first: rank 1" in launch.stderr
        evidence, _, used = launch.stderr.splitlines()[-3:]
        assert "the kernel killed 1 process" in evidence
        assert "whose limit is 200 MiB" in evidence
        assert re.search(r"rank 1 had used \d+ MiB, \d+% of the 200 MiB that there are$", used)
    assert "out of memory" in json.loads(result.read_text())["oom"]


def kills(count: int) -> MemoryKills:
    return MemoryKills(count, "/c/memory.events", None)


def test_kills_are_counted():
    assert out_of_memory(kills(3), kills(3)) == ""
    assert out_of_memory(None, kills(3)) == out_of_memory(kills(3), None) == ""
    assert out_of_memory(kills(3), kills(5)) == (
        "out of memory: meanwhile the kernel killed 2 processes of this cgroup "
        "(/c/memory.events: oom_kill 3 to 5)"
    )
