"""--max-restarts: after a failure all workers end, and all start anew, until the budget is used."""

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spawnlaunch.failures import Cause, used_after
from spawnlaunch.run import report
from tests.support.launching import MPICH_RANK, WITHOUT_GUARD, WORKERS, clean_environ, launch
from tests.support.processes import children, until
from tests.support.watching import KILLED, launched

if TYPE_CHECKING:
    from spawnlaunch.failures import Kind

AGAIN = WORKERS / "again.py"
HOUR_S = 3600.0


def failed(code: int = 7, after_s: float = 0.0) -> Cause:
    return Cause("failure", code=code, after_s=after_s)


def said(output: str | bytes) -> list[dict[str, Any]]:
    """What again.py said, attempt by attempt and rank by rank."""
    text = output if isinstance(output, str) else output.decode()
    found = [json.loads(line.removeprefix("ready ")) for line in text.splitlines()]
    return sorted(found, key=lambda one: (one["torchelastic_restart_count"], one["rank"]))


def test_a_failure_uses_one_restart_of_the_budget():
    assert used_after(failed(), 0, 2) == 1
    assert used_after(Cause("hang"), 0, 2) == 1
    assert used_after(failed(after_s=HOUR_S), 2, 2) is None
    assert used_after(failed(), 0, 0) is None


def test_the_budget_is_full_again_after_a_window_of_health():
    assert used_after(failed(after_s=59.0), 1, 1, 60.0) is None
    assert used_after(failed(after_s=60.0), 1, 1, 60.0) == 1
    assert used_after(failed(after_s=HOUR_S), 1, 1, 0.0) is None


def test_a_status_that_no_restart_mends_ends_the_launch():
    final = {75, 139}
    assert used_after(failed(75), 0, 3, final=final) is None
    assert used_after(failed(-11), 0, 3, final=final) is None
    assert used_after(failed(76), 0, 3, final=final) == 1


@pytest.mark.parametrize("kind", ["signal", "timeout", "gone"])
def test_who_told_the_launch_to_end_gets_no_restart(kind: "Kind"):
    assert used_after(Cause(kind), 0, 3) is None


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


def test_when_the_budget_is_used_the_last_failure_is_the_end():
    done = launch("--quiet", "--nproc", 2, "--max-restarts", 1, AGAIN, 9, "0:exit", 7)
    assert done.returncode == 7
    assert [one["torchelastic_restart_count"] for one in said(done.stdout)] == ["0", "0", "1", "1"]
    assert "failed first, after 1 restart: rank 0 " in done.stderr


def test_a_budget_that_health_fills_again_is_not_used_up():
    words = ("--nproc", 1, "--max-restarts", 1, "--restart-window", "0.001")
    done = launch("--quiet", *words, AGAIN, 3, "exit", 7)
    assert done.returncode == 0, done.stderr
    assert "restart 1 of 1 (in all 3)" in done.stderr


@pytest.mark.parametrize(
    ("flags", "status", "attempts"),
    [
        ((), 2, 1),
        ((), 75, 1),
        (("--no-restart-status", "3"), 3, 1),
        (("--no-restart-status", "3"), 75, 2),
    ],
)
def test_a_status_can_be_final(flags: tuple[str, ...], status: int, attempts: int):
    done = launch("--quiet", "--nproc", 1, "--max-restarts=1", *flags, AGAIN, 9, "exit", status)
    assert done.returncode == status
    assert len(said(done.stdout)) == attempts


def test_a_port_that_somebody_named_stays():
    words = ("--quiet", "--nproc", 1, "--max-restarts", 1, AGAIN, 1, "exit", 7)
    inherited = clean_environ(MASTER_PORT="23456")
    for flags, environ in ((("--master-port", "23456"), None), ((), inherited)):
        done = launch(*flags, *words, environ=environ)
        assert done.returncode == 0
        assert {one["master_port"] for one in said(done.stdout)} == {"23456"}
        assert len(said(done.stdout)) == 2


def test_each_attempt_has_files_of_its_own(tmp_path: Path):
    words = ("--max-restarts", 1, "--log-dir", tmp_path, "--rdzv-id", "me")
    assert launch("--nproc", 1, *words, AGAIN, 1, "signal", 11).returncode == 0
    for attempt in (0, 1):
        (one,) = said((tmp_path / f"me/attempt_{attempt}/0/stdout.log").read_text())
        assert one["torchelastic_restart_count"] == str(attempt)


def test_where_all_attempts_share_a_directory_an_old_error_is_not_a_new_one(tmp_path: Path):
    words = ("--max-restarts", 1, "--log-dir", tmp_path / "{rank}")
    done = launch("--nproc", 1, *words, AGAIN, 1, "signal", 11)
    assert done.returncode == 0
    assert [one["fresh"] for one in said(done.stdout)] == [True, True]


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
        assert one.all_gone()


def test_a_signal_while_the_workers_are_being_stopped_ends_the_launch(tmp_path: Path):
    words = ("--nproc", 2, "--grace", 6, "--max-restarts", 5)
    with launched(*words, AGAIN, 9, "1:exit", 7, "stay", directory=tmp_path) as one:
        until(lambda: "; stopping rank" in one.stderr, "rank 1 has failed")
        one.send(signal.SIGTERM)
        assert one.status() == 7
        assert "restart 1" not in one.stderr
        assert one.all_gone()


@pytest.mark.parametrize("victim", ["launcher", "guard"])
def test_whoever_is_killed_between_attempts_nothing_is_left(victim: str, tmp_path: Path):
    with launched(
        "--nproc", 2, "--max-restarts", 10**6, AGAIN, 10**6, "exit", 7, directory=tmp_path
    ) as one:
        one.read_until(6)
        one.send(signal.SIGKILL, one.pid if victim == "launcher" else one.guard)
        assert one.status() == KILLED
        assert one.all_gone()


def test_where_the_next_attempt_has_no_place_for_its_files_the_failure_is_the_end(tmp_path: Path):
    (tmp_path / "me").mkdir()
    (tmp_path / "me/attempt_1").write_text("")
    words = ("--nproc", 1, "--max-restarts", 3, "--log-dir", tmp_path, "--rdzv-id", "me")
    done = launch("--quiet", *words, AGAIN, 9, "exit", 7)
    assert done.returncode == 7
    assert "cannot restart: cannot make" in done.stderr


def test_what_cannot_be_executed_is_tried_as_often_as_what_fails(tmp_path: Path):
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    done = launch("--quiet", "--nproc", 2, "--max-restarts", 2, "--no-python", program)
    assert done.returncode == 127
    assert "restart 2 of 2" in done.stderr


def test_a_full_pipe_keeps_nobody_from_a_restart_and_tears_no_line(tmp_path: Path):
    """Rank 0 writes more than anybody reads; rank 1 fails in the first attempt."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time\n"
        "attempt, rank = os.environ['TORCHELASTIC_RESTART_COUNT'], os.environ['RANK']\n"
        "if rank == '1':\n    time.sleep(0.3)\n    sys.exit(attempt == '0')\n"
        "for number in range(20_000):\n"
        "    os.write(1, f'{attempt} {number} {\"x\" * 90}\\n'.encode())\n"
    )
    words = ("--nproc", 2, "--max-restarts", 1)
    with launched(*words, script, directory=tmp_path) as one:
        until(lambda: "restart 1 of 1" in one.stderr, "the restart")
        assert one.status() == 0
        assert one.all_gone()
        numbers: dict[bytes, list[int]] = {b"0": [], b"1": []}
        for line in one.rest().encode().splitlines():
            attempt, number, filling = line.split()
            assert filling == b"x" * 90
            numbers[attempt].append(int(number))
        first = numbers[b"0"]
        assert first == list(range(len(first)))
        assert numbers[b"1"] == list(range(20_000))


def test_a_launcher_without_a_guard_starts_workers_anew(tmp_path: Path):
    words = ("--nproc", 2, "--max-restarts", 1, AGAIN, 1, "1:exit", 7)
    with launched(*words, directory=tmp_path, command=WITHOUT_GUARD) as one:
        assert one.status() == 0
        assert len(said(one.output)) == 4


def test_several_nodes_are_told_of_slurms_requeue():
    two = ("--no-gang", "--nnodes", 2, "--node-rank", 0, "--master-addr", "localhost")
    done = launch(*two, "--nproc", 1, "--max-restarts", 3, AGAIN, 0, "exit", 0)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "-lt 3 ] && scontrol requeue $SLURM_JOB_ID" in line


def test_in_task_mode_nobody_can_restart_but_none_is_fine():
    words = ("--quiet", "--master-addr", "localhost", "--master-port", "29533")
    task = clean_environ(**MPICH_RANK)
    for ranks_here, why in (
        ("3", "needs a launcher that stays"),
        ("1", "this job has several nodes"),
    ):
        here = {**task, "MPI_LOCALNRANKS": ranks_here}
        refused = launch(*words, "--max-restarts", 1, AGAIN, 0, "exit", 0, environ=here)
        assert refused.returncode == 2
        assert "--max-restarts" in refused.stderr
        assert why in refused.stderr
    none = launch(*words, "--max-restarts=0", "--no-python", "true", environ=task)
    assert none.returncode == 0, none.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-restarts", "-1"), "type a number from 0"),
        (("--no-restart-status", "2,x"), "type numbers to 255"),
        (("--restart-window", "soon"), "not a time in seconds"),
    ],
)
def test_wrong_use_is_told_what_to_type(words: tuple[str, str], said: str):
    done = launch(*words, AGAIN, 0, "exit", 0)
    assert done.returncode == 2
    assert said in done.stderr


def test_restarts_are_told_in_words():
    words = [report.after_restarts(n) for n in range(3)]
    assert words == ["", ", after 1 restart", ", after 2 restarts"]
