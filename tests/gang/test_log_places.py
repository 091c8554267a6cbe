"""Where launchers of several nodes keep their files: below one name, and no two runs in one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spawnlaunch.run.log_place import MOST_RUNS
from tests.gang.launchers import SAY, Launchers

NEW = "has files of an earlier run, so those of this one are in"


def kept(logs: Path) -> dict[str, list[str]]:
    """By run, the directories of ranks."""
    return {
        run.name: sorted(str(each.parent.relative_to(run)) for each in run.rglob("stdout.log"))
        for run in logs.iterdir()
    }


def runs(
    directory: Path, logs: dict[str, Path], *words: object, nnodes: object = None
) -> Launchers:
    """A launch with these directories, by the name of the launcher, to its end."""
    directory.mkdir()
    launchers = Launchers(directory)
    for name, place in logs.items():
        flags = ("--nnodes", nnodes or len(logs), "--rdzv-id", "job", "--log-dir", place)
        launchers.start(name, *flags, *words)
    assert set(launchers.statuses().values()) == {0}, [launchers.said(name) for name in logs]
    return launchers


def test_two_runs_of_one_name_have_a_directory_each_also_in_a_restart(tmp_path: Path):
    logs = tmp_path / "logs"
    both = {"a": logs, "b": logs}
    first = runs(tmp_path / "1", both, SAY)
    second = runs(tmp_path / "2", both, "--max-restarts", 1, SAY, "fail-once", 3)
    ranks = [f"attempt_{attempt}/{rank}" for attempt in (0, 1) for rank in (0, 1)]
    assert kept(logs) == {"job": ranks[:2], "job_2": ranks}
    assert not any(NEW in first.said(name) for name in both)
    assert sum(second.said(name).count(f"{NEW} {logs}/job_2\n") for name in both) == 1


@pytest.mark.full
def test_where_all_numbers_are_taken_the_last_one_takes_what_is_there(tmp_path: Path):
    logs = tmp_path / "logs"
    for name in ("job", *(f"job_{n}" for n in range(2, MOST_RUNS))):
        (logs / name).mkdir(parents=True)
    runs(tmp_path / "1", {"a": logs, "b": logs}, SAY)
    assert {name for name, files in kept(logs).items() if files} == {f"job_{MOST_RUNS}"}


def test_nodes_with_disks_of_their_own_agree_on_a_name_that_is_new_on_all(tmp_path: Path):
    """The second run is on the second node and another one, which knows nothing of the first."""
    a, b, c = (tmp_path / name for name in ("disk-a", "disk-b", "disk-c"))
    runs(tmp_path / "1", {"a": a, "b": b}, SAY)
    runs(tmp_path / "2", {"b": b, "c": c}, SAY)
    assert (list(kept(a)), sorted(kept(b)), list(kept(c))) == (["job"], ["job", "job_2"], ["job_2"])


@pytest.mark.full
@pytest.mark.parametrize("disk", ["logs", "own"])
def test_one_that_comes_late_finds_the_others_place_or_takes_another(tmp_path: Path, disk: str):
    """It sees their disk; or it has one of its own, with files of an earlier run on it."""
    logs, its = tmp_path / "logs", tmp_path / disk
    (tmp_path / "own" / "job" / "attempt_1" / "2").mkdir(parents=True)
    launchers = Launchers(tmp_path)
    flags = ("--nnodes", "2:3", "--rdzv-conf", "last_call_timeout=1", "--rdzv-id", "job")
    for name in "ab":
        launchers.start(name, *flags, "--log-dir", logs, SAY, "wait-once")
    launchers.wait_for_workers(2)
    launchers.start("c", *flags, "--log-dir", its, SAY, "wait-once")
    assert launchers.statuses() == {"a": 0, "b": 0, "c": 0}
    assert list(kept(logs)) == ["job"]
    late = [f"attempt_1/{rank}" for rank in range(3)]
    if its == logs:
        assert kept(logs)["job"] == ["attempt_0/0", "attempt_0/1", *late]
    else:
        (rank,) = kept(its)["job_2"]
        assert rank in late
        assert f"{NEW} {its}/job_2\n" in launchers.said("c")


@pytest.mark.full
def test_a_template_is_the_users_business(tmp_path: Path):
    for _ in "12":
        directory = tmp_path / os.urandom(4).hex()
        runs(directory, dict.fromkeys("ab", Path(f"{tmp_path}/logs/{{rank}}")), SAY)
    assert sorted(os.listdir(tmp_path / "logs")) == ["0", "1"]
