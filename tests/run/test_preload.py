"""--preload: workers that are forked find themselves as if they had been started."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import LAUNCHER, ROOT, WORKERS, clean_environ, launch, reports
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
        assert worker["threads"] in ([], [int(worker["environ"]["OMP_NUM_THREADS"])])
    for ranks in (plain, forked):
        for name in ranks[0]["drawn"]:
            assert ranks[0]["drawn"][name] != ranks[1]["drawn"][name], name


@pytest.mark.full
def test_ranks_that_were_forked_find_each_other():
    done = launch("--nproc", 3, "--preload", "torch,numpy", WORKERS / "prove.py")
    assert [worker["proved"] for worker in reports(done.stdout)] == [True] * 3, done.stderr


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


@pytest.mark.full
def test_the_bundled_loop_can_be_preloaded(tmp_path: Path):
    small = ["--steps", "3", "--width", "32", "--layers", "1", "--out", tmp_path / "run"]
    done = launch("--nproc", 2, "--preload", "torch", "--", *small)
    assert done.returncode == 0, done.stderr
    assert "bits per byte" in done.stdout.splitlines()[-1]


def test_arguments_in_any_encoding_arrive_as_they_are(tmp_path: Path):
    script = tmp_path / "caf\udce9.py"
    script.write_text("import os, sys\nos.write(1, b'|'.join(map(os.fsencode, sys.argv)))\n")
    for preload in ([], ["--preload", "json"]):
        done = subprocess.run(
            [*LAUNCHER, "--quiet", "--nproc=1", *preload, os.fsencode(script), b"\xff\xe9", b"-x"],
            env=clean_environ(), capture_output=True, check=True,
        )  # fmt: skip
        assert done.stdout == os.fsencode(script) + b"|\xff\xe9|-x", done.stderr


DRAWS = """
import json, multiprocessing, os, random, sys, tempfile, uuid
import numpy, torch
from torch.utils.data import DataLoader
drawn = {
    "random": random.random(), "numpy": numpy.random.rand(), "torch": torch.rand(1).item(),
    "shuffle": torch.randperm(1000).tolist(),
    "dropout": torch.dropout(torch.ones(99), 0.5, True).tolist(),
    "loader": [int(i) for i in DataLoader(range(1000), shuffle=True, batch_size=1)],
    "key": multiprocessing.current_process().authkey.hex(), "uuid": str(uuid.uuid4()),
    "name": tempfile.mktemp(),
}
keys = getattr(sys.modules.get("seeding"), "KEYS", drawn)
drawn = {key: drawn[key] for key in keys}
os.write(1, json.dumps(drawn).encode() + b"\\n")
sys.exit(3 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and "again" in sys.argv else 0)
"""


def drawn(directory: Path, *words: object, begin: str = "") -> list[dict[str, object]]:
    """What the workers have drawn; modules of the directory can be preloaded."""
    script = directory / "draws.py"
    script.write_text(begin + DRAWS)
    environ = clean_environ(PYTHONPATH=f"{directory}:{ROOT}")
    flags, again = words[:-1], words[-1]
    done = launch("--quiet", *flags, script, again, environ=environ)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.full
def test_each_worker_of_each_attempt_draws_its_own_random_numbers(tmp_path: Path):
    (tmp_path / "drawing.py").write_text(
        "import random, numpy, torch, uuid, multiprocessing, tempfile\n"
        "random.random(), numpy.random.rand(700), torch.rand(1), tempfile.mktemp()\n"
    )
    flags = ("--nproc", 3, "--max-restarts", 1, "--preload", "torch,numpy,drawing")
    found = drawn(tmp_path, *flags, "again")
    assert len(found) >= 4  # three, and those of the first attempt that were not stopped earlier
    for key in found[0]:
        values = {json.dumps(each[key]) for each in found}
        assert len(values) == len(found), key


@pytest.mark.full
def test_what_a_module_has_seeded_itself_is_what_it_would_be_in_a_fresh_process(tmp_path: Path):
    (tmp_path / "seeding.py").write_text(
        "import random, numpy, torch\n"
        "random.seed(0), numpy.random.seed(0), torch.manual_seed(0), random.random()\n"
        "KEYS = ('random', 'numpy', 'torch', 'shuffle', 'dropout', 'loader')\n"
    )
    plain, forked = (
        drawn(tmp_path, "--nproc", 2, *preload, "once", begin="import seeding\n")
        for preload in ((), ("--preload", "seeding"))
    )
    assert len(plain) == len(forked) == 2
    assert all(each == plain[0] for each in (*plain, *forked))
