"""Where launchers of several nodes keep their files: below one name, and no two runs in one."""

from __future__ import annotations

from pathlib import Path

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


def test_nodes_with_disks_of_their_own_agree_on_a_name_that_is_new_on_all(tmp_path: Path):
    """The second run is on the second node and another one, which knows nothing of the first."""
    a, b, c = (tmp_path / name for name in ("disk-a", "disk-b", "disk-c"))
    runs(tmp_path / "1", {"a": a, "b": b}, SAY)
    runs(tmp_path / "2", {"b": b, "c": c}, SAY)
    assert (list(kept(a)), sorted(kept(b)), list(kept(c))) == (["job"], ["job", "job_2"], ["job_2"])
