"""Where launchers of several nodes keep their files: below one name, and no two runs in one."""

from __future__ import annotations

import re
from pathlib import Path

from tests.multinode.launchers import SAY, Launchers


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
    """It has the same name on all nodes, also where each has a disk of its own."""
    a, b = tmp_path / "disk-a", tmp_path / "disk-b"
    runs(tmp_path / "1", {"a": a, "b": b}, SAY)
    (first,) = kept(a)
    runs(tmp_path / "2", {"a": a, "b": b}, "--max-restarts", 1, SAY, "fail-once", 3)
    (second,) = kept(a).keys() - {first}
    assert kept(b).keys() == {first, second}
    assert re.fullmatch(r"job-\d{8}T\d{6}Z-[0-9a-f]{8}", first)
    ranks = [f"attempt_{attempt}/{rank}" for attempt in (0, 1) for rank in (0, 1)]
    assert sorted(kept(a)[first] + kept(b)[first]) == ranks[:2]
    assert sorted(kept(a)[second] + kept(b)[second]) == ranks


def test_the_launcher_of_the_rank_that_failed_names_its_file_last(tmp_path: Path):
    launchers = Launchers(tmp_path)
    flags = ("--nnodes", 2, "--rdzv-id", "job", "--log-dir", tmp_path / "logs", "--node-rank")
    launchers.start("a", *flags, 0, SAY, "wait")
    launchers.start("b", *flags, 1, SAY, "fail", 7)
    assert launchers.statuses() == {"a": 7, "b": 7}
    (run,) = (tmp_path / "logs").iterdir()
    last = launchers.said("b").splitlines()[-1]
    assert last == f"spawnlaunch: the stderr of rank 1 is in {run}/attempt_0/1/stderr.log"
    assert "is in" not in launchers.said("a").splitlines()[-1]
