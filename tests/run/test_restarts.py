"""--max-restarts: after a failure all workers end, and all start anew, until the budget is used."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.outcome import endings
from spawnlaunch.outcome.failures import Cause, used_after
from tests.support.launching import WORKERS, clean_environ, launch
from tests.support.matrix import mostly_full
from tests.support.ports import free_port
from tests.support.processes import children, until
from tests.support.watching import launched

AGAIN = WORKERS / "again.py"


def said(output: str | bytes) -> list[dict[str, Any]]:
    """What again.py said, attempt by attempt and rank by rank."""
    text = output if isinstance(output, str) else output.decode()
    found = [json.loads(line.removeprefix("ready ")) for line in text.splitlines()]
    return sorted(found, key=lambda one: (one["torchelastic_restart_count"], one["rank"]))


def failed(code: int = 7, after_s: float = 0.0) -> Cause:
    return Cause("failure", code=code, after_s=after_s)


HOUR_S = 3600.0
FINAL = {75, 139}


@pytest.mark.parametrize(
    ("cause", "used", "limits", "becomes"),
    [
        (failed(), 0, (2,), 1),
        (Cause("hang"), 0, (2,), 1),
        (failed(after_s=HOUR_S), 2, (2,), None),
        (failed(), 0, (0,), None),
        # The budget is full again after a window of health.
        (failed(after_s=59.0), 1, (1, 60.0), None),
        (failed(after_s=60.0), 1, (1, 60.0), 1),
        (failed(after_s=HOUR_S), 1, (1, 0.0), None),
        # A status that no restart mends.
        (failed(75), 0, (3, 0.0, FINAL), None),
        (failed(-11), 0, (3, 0.0, FINAL), None),
        (failed(76), 0, (3, 0.0, FINAL), 1),
        # Somebody has told the launch to end.
        (Cause("signal"), 0, (3,), None),
        (Cause("timeout"), 0, (3,), None),
        (Cause("gone"), 0, (3,), None),
    ],
)
def test_the_restarts_that_are_used_after_a_cause(cause, used, limits, becomes):
    assert used_after(cause, used, *limits) == becomes


def test_all_workers_start_anew_with_another_port_and_fresh_error_files(tmp_path: Path):
    path = tmp_path / "result.json"
    words = ("--nproc", 2, "--max-restarts", 3, "--result", path, AGAIN, 2, "1:exit", 7)
    done = launch("--quiet", *words)
    assert done.returncode == 0, done.stderr
    attempts = said(done.stdout)
    counts = [one["torchelastic_restart_count"] for one in attempts]
    assert counts == ["0", "0", "1", "1", "2", "2"]
    assert {one["torchelastic_max_restarts"] for one in attempts} == {"3"}
    assert all(one["fresh"] for one in attempts)
    assert len({one["master_port"] for one in attempts}) == 3
    lines = [line for line in done.stderr.splitlines() if "restart" in line]
    assert [line.rpartition(": ")[2] for line in lines] == ["restart 1 of 3", "restart 2 of 3"]
    assert "exited with status 7" in lines[0]
    result = json.loads(path.read_text())
    assert (result["status"], result["cause"]) == (0, None)
    assert [(one["rank"], one["status"]) for one in result["restarts"]] == [(1, 7), (1, 7)]


@pytest.mark.parametrize(
    ("flags", "failures", "how", "status", "attempts", "line"),
    mostly_full(
        [
            ((), 9, 7, 7, 2, "failed, after 1 restart: rank 0 "),
            (("--restart-window", "0.001"), 3, 7, 0, 4, "restart 1 of 1 (in all 3)"),
            ((), 9, 75, 75, 1, "no restart after status 75"),
            (("--no-restart-status", "3"), 9, 3, 3, 1, "no restart after status 3"),
            (("--no-restart-status", "3"), 9, 75, 75, 2, "failed, after 1 restart: rank 0 "),
        ],
        3,
    ),
)
def test_the_budget_and_the_status_decide_whether_there_is_another_attempt(
    flags: tuple[str, ...], failures: int, how: int, status: int, attempts: int, line: str
):
    done = launch("--quiet", "--nproc=1", "--max-restarts=1", *flags, AGAIN, failures, "exit", how)
    assert (done.returncode, len(said(done.stdout))) == (status, attempts)
    assert line in done.stderr


@pytest.mark.parametrize(
    ("place", "filed"),
    [("", "me-*/attempt_{}/0/stdout.log"), ("{rank}", None)],
    ids=["of its own", "that all share"],
)
def test_in_each_attempt_an_error_file_is_new(place: str, filed: str | None, tmp_path: Path):
    words = ("--max-restarts", 1, "--log-dir", tmp_path / place, "--rdzv-id", "me")
    done = launch("--nproc", 1, *words, AGAIN, 1, "signal", 11)
    assert done.returncode == 0
    assert [one["fresh"] for one in said(done.stdout)] == [True, True]
    for attempt in (0, 1) if filed else ():
        (file,) = tmp_path.glob(filed.format(attempt))
        (one,) = said(file.read_text())
        assert one["torchelastic_restart_count"] == str(attempt)


def test_a_port_that_somebody_named_stays():
    words = ("--quiet", "--nproc", 1, "--max-restarts", 1, AGAIN, 1, "exit", 7)
    port = str(free_port())
    inherited = clean_environ(MASTER_PORT=port)
    for flags, environ in ((("--master-port", port), None), ((), inherited)):
        done = launch(*flags, *words, environ=environ)
        assert done.returncode == 0
        assert {one["master_port"] for one in said(done.stdout)} == {port}
        assert len(said(done.stdout)) == 2


def test_an_image_that_is_warm_is_used_again(tmp_path: Path):
    (tmp_path / "loud.py").write_text("import os\nos.write(2, b'imported\\n')\n")
    environ = clean_environ(PYTHONPATH=f"{tmp_path}:{WORKERS.parent.parent}")
    words = ("--quiet", "--nproc", 2, "--max-restarts", 2, "--preload", "loud")
    done = launch(*words, AGAIN, 2, "1:exit", 7, environ=environ)
    assert done.returncode == 0, done.stderr
    assert len(said(done.stdout)) == 6
    assert all(one["fresh"] for one in said(done.stdout))
    assert done.stderr.count("imported") == 1


def test_nothing_of_an_attempt_is_left_when_the_next_one_starts(tmp_path: Path):
    words = ("--nproc", 2, "--grace", "0.2", "--max-restarts", 1)
    with launched(
        *words, AGAIN, 1, "1:exit", 7, "stay", directory=tmp_path, environ={"SECONDS": "60"}
    ) as one:
        one.read_until(4)
        of_the_first = {worker["pid"] for worker in said(one.output)[:2]}
        assert not of_the_first & set(one.workers)
        until(lambda: len(children(one.guard)) == 4, "two workers, and a daemon of each")
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM


def test_what_cannot_be_executed_is_tried_as_often_as_what_fails(tmp_path: Path):
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    done = launch("--quiet", "--nproc", 2, "--max-restarts", 2, "--no-python", program)
    assert done.returncode == 127
    assert "restart 2 of 2" in done.stderr


def test_restarts_are_told_in_words():
    words = [endings.after_restarts(n) for n in range(3)]
    assert words == ["", ", after 1 restart", ", after 2 restarts"]


CLEANED = """
import os, shutil, stat, sys
place = os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"])
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    shutil.rmtree(place)
    sys.exit(3)
print(oct(stat.S_IMODE(os.stat(place).st_mode)))
open(os.environ["TORCHELASTIC_ERROR_FILE"], "w").close()
"""


def test_a_scratch_directory_that_a_cleaner_has_taken_is_made_again(tmp_path: Path):
    script, place = tmp_path / "script.py", tmp_path / "job"
    script.write_text(CLEANED)
    place.mkdir()
    environ = clean_environ(TMPDIR=str(place))
    done = launch("--nproc=1", "--max-restarts=1", script, environ=environ)
    assert (done.returncode, done.stdout) == (0, "0o700\n"), done.stderr
    assert [*place.iterdir()] == []
