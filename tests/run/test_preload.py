"""--preload: workers that are forked find themselves as if they had been started."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import LAUNCHER, WORKERS, clean_environ, launch, reports
from tests.support.matrix import mostly_full

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
    ("script", "safe"),
    mostly_full([("-m found", ""), ("found.py", ""), ("folder", ""), ("found.py", "1")]),
)
def test_a_forked_worker_finds_all_as_a_started_one_does(script: str, safe: str, tmp_path: Path):
    """Signals, descriptors, streams, paths and threads; and each rank draws numbers of its own."""
    (tmp_path / "folder").mkdir()
    for copy in ("found.py", "folder/__main__.py"):
        (tmp_path / copy).write_text((WORKERS / "found.py").read_text())
    environ = clean_environ(PYTHONSAFEPATH=safe, PYTHONUNBUFFERED="")

    def found(*preload: str) -> list[dict[str, Any]]:
        done = launch("--nproc", 2, *preload, *script.split(), environ=environ, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return reports(done.stdout)

    plain, forked = found(), found("--preload", "numpy,multiprocessing")
    for one, other in zip(plain, forked, strict=True):
        own = {"environ", "drawn"}
        assert {k: v for k, v in other.items() if k not in own} == {
            k: v for k, v in one.items() if k not in own
        }
    for worker in (*plain, *forked):
        assert worker["threads"] == int(worker["environ"]["OMP_NUM_THREADS"])
    for ranks in (plain, forked):
        for name in ranks[0]["drawn"]:
            assert ranks[0]["drawn"][name] != ranks[1]["drawn"][name], name


@pytest.mark.full
def test_ranks_that_were_forked_find_each_other_and_torch_draws_other_numbers_in_each():
    done = launch("--nproc", 3, "--preload", "torch,numpy", WORKERS / "prove.py")
    workers = reports(done.stdout)
    assert [worker["proved"] for worker in workers] == [True] * 3, done.stderr
    assert len({worker["drawn"] for worker in workers}) == 3


@pytest.mark.parametrize(
    ("line", "status"),
    mostly_full(
        [
            ("raise SystemExit(7)", 7),
            ("raise SystemExit('in words')", 1),
            ("import os; os._exit(9)", 9),
            ("raise KeyboardInterrupt", 130),
            ("raise SystemExit", 0),
            ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ],
        4,
    ),
)
def test_the_exit_status_is_as_if_it_had_been_started_and_what_it_has_said_is_not_lost(
    line: str, status: int, tmp_path: Path
):
    script = tmp_path / "script.py"
    script.write_text(f"print('said')\n{line}\n")
    environ = clean_environ(PYTHONUNBUFFERED="")  # as the launcher's own Python is as a rule
    done = launch("--nproc", 1, "--preload", "json", script, environ=environ)
    assert (done.returncode, done.stdout) == (status, "said\n")
    assert ("died of SIGINT" in done.stderr) == (status == 130)


def test_a_traceback_begins_in_the_script_and_handlers_run(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit\natexit.register(print, 'at exit')\nraise ValueError('mine')\n"
    )
    done = launch("--nproc", 1, "--preload", "json", script)
    traceback = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert traceback[1] == f'  File "{script}", line 3, in <module>'
    assert "ValueError: mine" in traceback
    assert (done.returncode, done.stdout) == (1, "at exit\n")


def test_arguments_in_any_encoding_arrive_as_they_are(tmp_path: Path):
    script = tmp_path / "caf\udce9.py"
    script.write_text("import os, sys\nos.write(1, b'|'.join(map(os.fsencode, sys.argv)))\n")
    for preload in ([], ["--preload", "json"]):
        done = subprocess.run(
            [*LAUNCHER, "--quiet", "--nproc=1", *preload, os.fsencode(script), b"\xff\xe9", b"-x"],
            env=clean_environ(), capture_output=True, check=True,
        )  # fmt: skip
        assert done.stdout == os.fsencode(script) + b"|\xff\xe9|-x", done.stderr
