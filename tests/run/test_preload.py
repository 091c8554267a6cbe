"""--preload: workers that are forked find themselves as if they had been started."""

import os
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import LAUNCHER, WORKERS, clean_environ, launch, reports, start
from tests.support.patience import PATIENCE_S
from tests.support.processes import nothing_left_behind

SAME = ("argv", "name", "file", "path", "threads", "pools", "loaders", "write_through")


@pytest.mark.full
def test_a_preloaded_worker_finds_what_a_started_one_finds():
    plain = reports(launch("--nproc", 1, WORKERS / "preloaded.py").stdout)
    forked = reports(launch("--nproc", 1, "--preload", "torch", WORKERS / "preloaded.py").stdout)
    assert len(plain) == len(forked) == 1
    assert {key: forked[0][key] for key in SAME} == {key: plain[0][key] for key in SAME}
    own = ("TORCHELASTIC_", "MASTER_PORT", "SPAWNLAUNCH_", "PWD", "SHLVL", "_")
    for name, value in plain[0]["environ"].items():
        assert name.startswith(own) or forked[0]["environ"][name] == value, name


@pytest.mark.parametrize(
    ("words", "safe"),
    [(("found.py",), ""), (("-m", "found"), ""), (("folder",), ""), (("found.py",), "1")],
)
def test_a_forked_worker_finds_all_as_a_started_one_does(
    words: tuple[str, ...], safe: str, tmp_path: Path
):
    """Signals, descriptors, streams, paths and threads; and each rank draws numbers of its own."""
    (tmp_path / "folder").mkdir()
    for copy in ("found.py", "folder/__main__.py"):
        (tmp_path / copy).write_text((WORKERS / "found.py").read_text())
    environ = clean_environ(PYTHONSAFEPATH=safe, PYTHONUNBUFFERED="")

    def found(*preload: str) -> list[dict[str, Any]]:
        done = launch("--nproc", 2, *preload, *words, environ=environ, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return reports(done.stdout)

    plain, forked = found(), found("--preload", "numpy,multiprocessing")
    for one, other in zip(plain, forked, strict=True):
        own = {"environ", "drawn"}
        assert {k: v for k, v in other.items() if k not in own} == {
            k: v for k, v in one.items() if k not in own
        }
    for worker in (*plain, *forked):
        assert worker["threads"] in ([], [int(worker["environ"]["OMP_NUM_THREADS"])])
    for ranks in (plain, forked):
        for name in ranks[0]["drawn"]:
            assert ranks[0]["drawn"][name] != ranks[1]["drawn"][name], name


@pytest.mark.full
def test_ranks_that_were_forked_find_each_other():
    done = launch("--nproc", 3, "--preload", "torch,numpy", WORKERS / "prove.py")
    assert [worker["proved"] for worker in reports(done.stdout)] == [True] * 3, done.stderr


def test_a_module_is_imported_once_for_all(tmp_path: Path):
    (tmp_path / "loud.py").write_text("import os\nprint('imported', flush=True)\n")
    script = tmp_path / "script.py"
    script.write_text("import loud\nprint('ran', flush=True)\n")
    environ = clean_environ(PYTHONPATH=f"{tmp_path}:{os.getcwd()}")
    done = launch("--nproc", 3, "--preload", "loud", script, environ=environ)
    assert done.stdout.split() == ["imported", "ran", "ran", "ran"]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("raise SystemExit", 0),
        ("raise SystemExit(7)", 7),
        ("raise SystemExit('in words')", 1),
        ("raise ValueError('mine')", 1),
        ("import os; os._exit(9)", 9),
        ("raise KeyboardInterrupt", 130),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
    ],
)
def test_the_exit_status_is_as_if_it_had_been_started(tmp_path: Path, line: str, status: int):
    script = tmp_path / "script.py"
    script.write_text(f"{line}\n")
    done = launch("--nproc", 2, "--preload", "json", script)
    assert done.returncode == status


def test_what_a_forked_worker_has_said_is_not_lost_with_it(tmp_path: Path):
    script = tmp_path / "ends.py"
    script.write_text("import os\nprint('said')\nos._exit(0)\n")
    environ = clean_environ(PYTHONUNBUFFERED="")  # as the launcher's own Python is as a rule
    done = launch("--nproc", 2, "--preload", "json", script, environ=environ)
    assert done.stdout.split() == ["said", "said"]


def test_a_traceback_begins_in_the_script_and_handlers_run(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit\natexit.register(print, 'at exit')\nraise ValueError('mine')\n"
    )
    done = launch("--nproc", 1, "--preload", "json", script)
    traceback = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert traceback[1] == f'  File "{script}", line 3, in <module>'
    assert "ValueError: mine" in traceback
    assert done.stdout == "at exit\n"


def test_a_module_runs_as_python_runs_it():
    done = launch("--nproc", 2, "--preload", "json", "-m", "tests.workers.report", "--flag")
    for worker in reports(done.stdout):
        assert worker["argv"] == [str(WORKERS / "report.py"), "--flag"]
    assert len(reports(done.stdout)) == 2


@pytest.mark.full
def test_the_bundled_loop_can_be_preloaded(tmp_path: Path):
    small = ["--steps", "3", "--width", "32", "--layers", "1", "--out", tmp_path / "run"]
    done = launch("--nproc", 2, "--preload", "torch", "--", *small)
    assert done.returncode == 0, done.stderr
    assert "bits per byte" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preload", "no_such_module", WORKERS / "report.py"], "cannot be imported"),
        (["--preload", "1x", WORKERS / "report.py"], "is no module"),
        (["--preload", "json", "--no-python", "true"], "--preload is for Python"),
    ],
)
def test_what_cannot_be_preloaded_is_refused(words: list[object], said: str):
    done = launch("--nproc", 2, "--quiet", *words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert said in line


def test_an_import_that_starts_a_thread_is_refused_with_the_reason(tmp_path: Path):
    (tmp_path / "threaded.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), name='busy', daemon=True).start()\n"
    )
    environ = clean_environ(PYTHONPATH=f"{tmp_path}:{os.getcwd()}")
    done = launch("--nproc", 2, "--preload", "threaded", WORKERS / "report.py", environ=environ)
    assert done.returncode == 2
    assert "there is a thread 'busy'" in done.stderr
    assert reports(done.stdout) == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_a_preloaded_launch_survives_its_launcher(signum: signal.Signals):
    mark = f"TEST_MARK={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    with nothing_left_behind(mark):
        launcher = start(
            *LAUNCHER,
            "--nproc",
            "2",
            "--preload",
            "json",
            WORKERS / "sleep.py",
            environ=clean_environ(**{name: value}),
            stderr=subprocess.DEVNULL,
        )
        for _ in range(2):
            assert launcher.stdout.readline().startswith("ready")
        launcher.send_signal(signum)
        launcher.communicate(timeout=PATIENCE_S)


def test_arguments_in_any_encoding_arrive_as_they_are(tmp_path: Path):
    script = tmp_path / "caf\udce9.py"
    script.write_text("import os, sys\nos.write(1, b'|'.join(map(os.fsencode, sys.argv)))\n")
    for preload in ([], ["--preload", "json"]):
        done = subprocess.run(
            [*LAUNCHER, "--quiet", "--nproc=1", *preload, os.fsencode(script), b"\xff\xe9", b"-x"],
            env=clean_environ(),
            capture_output=True,
            check=True,
        )
        assert done.stdout == os.fsencode(script) + b"|\xff\xe9|-x", done.stderr


def test_a_worker_that_was_interrupted_dies_of_the_signal(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text("raise KeyboardInterrupt\n")
    for preload in ((), ("--preload", "json")):
        done = launch("--nproc", 1, *preload, script)
        assert "died of SIGINT" in done.stderr
