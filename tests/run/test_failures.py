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

from tests.support.launching import FAMILY, HOST, LAUNCHER, WORKERS, clean_environ, launch, start
from tests.support.processes import nothing_left_behind, state, until
from tests.support.watching import launched

FAIL = WORKERS / "fail.py"


def script(directory: Path, text: str) -> Path:
    path = directory / "script.py"
    path.write_text("import os, signal, sys, time\nrank = os.environ['RANK']\n"
                    + textwrap.dedent(text))  # fmt: skip
    return path


def test_the_first_to_fail_is_named_and_the_others_have_a_line_each():
    done = launch("--nproc", 3, "--quiet", FAIL, 1, "exit", 7)
    lines = done.stderr.splitlines()
    assert done.returncode == 7
    assert f"rank 1 on {HOST} (pid " in lines[-4]
    assert "status 7; stopping ranks 0,2" in lines[-4]
    assert "failed first: rank 1 on " in lines[-3]
    assert "died of SIGTERM from the launcher" in lines[-2]
    assert "rank 0" in lines[-2]
    assert "rank 2" in lines[-1]


def test_the_order_of_exits_decides_who_was_first_even_if_the_guard_was_asleep(tmp_path: Path):
    """Each rank ends right after the one above it has; the guard hears of all in one moment."""
    text = """
        import select
        here = [os.path.join(sys.argv[1], str(n)) for n in range(5)]
        with open(here[int(rank)] + '.new', 'w') as file:
            file.write(str(os.getpid()))
        os.rename(here[int(rank)] + '.new', here[int(rank)])
        os.write(1, b'ready\\n')
        while not os.path.exists(here[4]):
            time.sleep(0.01)
        if rank != '3':
            poller = select.poll()
            poller.register(os.pidfd_open(int(open(here[int(rank) + 1]).read())), select.POLLIN)
            poller.poll()
        os._exit(10 + int(rank))
    """
    with launched("--nproc", 4, script(tmp_path, text), tmp_path, directory=tmp_path) as running:
        running.read_until(4)
        workers = running.workers
        running.send(signal.SIGSTOP, running.guard)
        (tmp_path / "4").touch()
        until(lambda: {state(pid) for pid in workers} == {"Z"}, "all have ended")
        running.send(signal.SIGCONT, running.guard)
        assert running.status() == 13
        assert "failed first: rank 3" in running.stderr


@pytest.mark.full
def test_the_traceback_of_a_recorded_error_is_whole_and_last(tmp_path: Path):
    text = """
        from torch.distributed.elastic.multiprocessing.errors import record
        @record
        def main():
            if rank == '1':
                raise ValueError('the very reason')
            try:
                time.sleep(600)
            finally:
                print('a late word of another rank', file=sys.stderr)
        main()
    """
    error_file = tmp_path / "error.json"
    environ = clean_environ(TORCHELASTIC_ERROR_FILE=str(error_file))
    done = launch("--nproc", 2, script(tmp_path, text), environ=environ)
    assert done.returncode == 1
    tail = done.stderr.split(f"spawnlaunch: the last lines of rank 1 on {HOST}:\n")[1].splitlines()
    assert tail[0] == "Traceback (most recent call last):"
    assert tail[-1] == "ValueError: the very reason"
    message = json.loads(error_file.read_text())["message"]
    assert message["message"] == "ValueError: the very reason"
    assert message["extraInfo"]["py_callstack"].splitlines() == tail


def test_the_tail_of_a_redirected_stderr_comes_last(tmp_path: Path):
    text = """
        if rank == '1':
            print('\\n'.join(f'line {i}' for i in range(100)), file=sys.stderr)
            raise ValueError('the very reason')
        time.sleep(600)
    """
    done = launch(
        "--nproc", 2, "--log-dir", tmp_path, "--redirects", 2, script(tmp_path, text)
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert lines[-1] == "ValueError: the very reason"
    assert "line 99" in lines
    assert "line 10" not in lines


def test_an_error_without_a_record_is_filed_for_the_user_all_the_same(tmp_path: Path):
    error_file = tmp_path / "error.json"
    environ = clean_environ(TORCHELASTIC_ERROR_FILE=str(error_file))
    assert launch("--nproc", 2, FAIL, 0, "signal", 11, environ=environ).returncode == 139
    message = json.loads(error_file.read_text())["message"]
    assert re.match(r"rank 0 on \S+ \(pid \d+\) died of SIGSEGV after ", message["message"])
    assert message["errorCode"] == 139


def test_the_result_file_tells_how_every_rank_ended(tmp_path: Path):
    path = tmp_path / "result.json"
    launch("--nproc", 2, "--result", path, "--rdzv-id", "me", FAIL, 1, "exit", 7)
    result = json.loads(path.read_text())
    zero, one = result.pop("ranks")
    del result["host"]
    assert re.match(r"rank 1 on \S+ \(pid \d+\) exited with status 7 after ", result.pop("why"))
    assert result == {
        "status": 7,
        "cause": "failure",
        "signal": None,
        "first_failure": 1,
        "run_id": "me",
        "oom": None,
        "restarts": [],
    }
    assert (zero["rank"], zero["status"], zero["signal"], zero["told"]) == (
        0,
        128 + signal.SIGTERM,
        "SIGTERM",
        "SIGTERM",
    )
    assert (one["rank"], one["status"], one["signal"], one["told"]) == (1, 7, None, None)
    assert one["seconds"] >= 0.3
    for name in ("seconds", "user_seconds", "system_seconds"):  # in milliseconds, and no finer
        assert all(rank[name] == round(rank[name], 3) for rank in (zero, one))
    assert list(tmp_path.iterdir()) == [path]


def test_the_result_of_a_success_is_filed_as_well(tmp_path: Path):
    path = tmp_path / "result.json"
    assert launch("--nproc", 2, "--result", path, "--no-python", "true").returncode == 0
    result = json.loads(path.read_text())
    assert (result["status"], result["cause"]) == (0, None)
    assert [rank["status"] for rank in result["ranks"]] == [0, 0]


def test_a_result_that_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path):
    done = launch("--nproc", 1, "--result", tmp_path / "no" / "r.json", "--no-python", "true")
    assert done.returncode == 2
    assert "no directory that can be" in done.stderr


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_program_that_cannot_be_started_says_so(nproc, tmp_path: Path):
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    done = launch("--nproc", nproc, "--no-python", broken)
    assert done.returncode in (126, 127)
    assert "cannot start" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_grace_is_the_workers_on_the_path_of_a_failure_too(tmp_path: Path):
    """torchrun's own --shutdown-timeout does not reach this path, and waits for 30 seconds."""
    text = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print('ready', flush=True)
        while rank == '0' or not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        os._exit(7)
    """
    go = tmp_path / "go"
    with launched(
        "--nproc", 2, "--shutdown-timeout", "0.5", script(tmp_path, text), go, directory=tmp_path
    ) as running:
        running.read_until(2)
        go.touch()
        assert running.status() == 7
        assert f"rank 0 on {HOST} still ran after 0.5" in running.stderr
        assert "died of SIGKILL from the launcher" in running.stderr


def test_a_worker_that_saves_within_the_grace_is_not_disturbed(tmp_path: Path):
    text = """
        import subprocess
        def save(*_):
            time.sleep(0.5)
            os.write(1, f'saved, child {child.poll()}\\n'.encode())
            os._exit(85)
        child = subprocess.Popen(['sleep', '600'])
        signal.signal(signal.SIGTERM, save)
        os.write(1, b'ready\\n')
        while True:
            time.sleep(1)
    """
    with launched("--nproc", 2, script(tmp_path, text), directory=tmp_path) as running:
        running.read_until(2)
        running.send(signal.SIGTERM)
        assert running.status() == 85
        assert running.output.count(b"saved, child None") == 2


def test_nobody_who_reads_stderr_does_not_keep_the_workers_alive(tmp_path: Path):
    """The report goes to a full pipe, and the launcher is killed meanwhile."""
    inlet, outlet = os.pipe()
    os.set_blocking(outlet, False)
    try:
        while True:
            os.write(outlet, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(outlet, True)
    mark = f"TMPDIR={tmp_path}"
    with (
        nothing_left_behind(mark),
        start(
            *LAUNCHER,
            "--nproc",
            "2",
            "--grace",
            "1",
            "--quiet",
            FAMILY,
            "stubborn",
            "--",
            "0:exit",
            "6",
            environ=clean_environ(TMPDIR=str(tmp_path)),
            stderr=outlet,
            text=False,
        ) as launcher,
    ):
        assert launcher.wait(100) == 6
        assert launcher.stdout
        assert b"ready 0" not in launcher.stdout.read()
    os.close(inlet)
    os.close(outlet)


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


def test_one_that_aborts_when_it_is_told_to_end_was_not_the_first(tmp_path: Path):
    """Its words are in a file, whose reader we are not: when it said them is not known."""
    ready = tmp_path / "ready"
    aborts = "trap 'echo terminate called by me >&2; kill -ABRT $$' TERM"
    script = (
        f"if [ $RANK = 0 ]; then until [ -e {ready} ]; do sleep 0.02; done; exit 3; fi; "
        f"{aborts}; touch {ready}; while :; do sleep 0.02; done"
    )
    kept = ("--redirects", 3, "--log-dir", tmp_path / "logs")
    done = launch("--nproc", 2, "--quiet", *kept, "--no-python", "sh", "-c", script)
    assert done.returncode == 3, done.stderr
    assert "failed first: rank 0" in done.stderr
    assert "died of SIGABRT" in done.stderr


def test_a_single_worker_that_fails_is_reported_in_one_line():
    done = launch("--nproc", 1, "--quiet", FAIL, 0, "exit", 7)
    (line,) = done.stderr.splitlines()
    assert line.startswith("spawnlaunch: failed: rank 0 on ")
    assert re.search(r"exited with status 7 after \d+\.\d s", line)


@pytest.fixture
def room_for_four() -> Iterator[Path]:
    """A cgroup that holds four processes at most."""
    group = Path("/sys/fs/cgroup/pids", f"spawnlaunch-test-{uuid.uuid4()}")
    try:
        group.mkdir()
        (group / "pids.max").write_text("4")
    except OSError as error:
        pytest.skip(f"needs a cgroup of its own (v1, pids): {error}")
    yield group
    group.rmdir()


def test_a_limit_of_processes_is_a_failure_and_nothing_stays(room_for_four: Path, tmp_path: Path):
    def enter() -> None:
        (room_for_four / "cgroup.procs").write_text(str(os.getpid()))

    with launched("--nproc", 3, WORKERS / "sleep.py", directory=tmp_path, preexec=enter) as running:
        assert running.status() == os.EX_OSERR
        why = "the system refuses fork: Resource temporarily unavailable; see ulimit -u"
        assert f"cannot start rank 2 on {HOST}: {why}" in running.stderr
        assert running.all_gone()


def test_a_scratch_directory_that_cannot_be_made_is_wrong_use(tmp_path: Path):
    done = launch("--no-python", "true", environ=clean_environ(TMPDIR=str(tmp_path / "none")))
    assert done.returncode == 2
    assert "set TMPDIR to a place" in done.stderr
