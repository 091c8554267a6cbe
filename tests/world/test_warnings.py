"""Traps are named where they bite, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.launching import SLURM_TASK
from tests.world.resolving import resolve

FIRST = SLURM_TASK | {
    "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_GTIDS": "0,1", "SLURMD_NODENAME": "node0",
    "SLURM_CONF": "/nowhere",
}  # fmt: skip
ALONE_ON_ITS_NODE = FIRST | {
    "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_GTIDS": "0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "environ", "named"),
    [
        ("", FIRST | {"CUDA_VISIBLE_DEVICES": "0"}, True),
        ("", FIRST | {"CUDA_VISIBLE_DEVICES": "0,1"}, False),
        ("", FIRST, False),
        ("", FIRST | {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, False),
        ("", ALONE_ON_ITS_NODE | {"CUDA_VISIBLE_DEVICES": "0"}, False),
        ("--virtual-local-rank", FIRST | {"CUDA_VISIBLE_DEVICES": "0"}, False),
        ("--nproc=2", ALONE_ON_ITS_NODE | {"CUDA_VISIBLE_DEVICES": "0"}, False),
    ],
)
def test_a_device_for_each_task_is_a_trap_where_tasks_are_beside_each_other(
    flags: str, environ: dict[str, str], named: bool
) -> None:
    lines = resolve(flags, environ).warnings
    assert any("--virtual-local-rank" in line for line in lines) == named


KILLS = "SLURM_KILL_BAD_EXIT"  # of all where one ends badly: exported, or KillOnBadExit of the site
NOT_TOLD = {name: value for name, value in FIRST.items() if name != KILLS}


@pytest.mark.parametrize(
    ("flags", "environ", "site", "named"),
    [
        ("", NOT_TOLD, "KillOnBadExit=0", True),
        ("", NOT_TOLD | {KILLS: "0"}, "KillOnBadExit=1", True),
        ("", NOT_TOLD, "KillOnBadExit=1", False),
        ("", NOT_TOLD | {KILLS: "1"}, "", False),
        ("--nproc=2", {**ALONE_ON_ITS_NODE, KILLS: "0"}, "", False),  # they end each other
        ("--nproc=2 --no-gang", {**ALONE_ON_ITS_NODE, KILLS: "0"}, "", True),
    ],
)
def test_ranks_that_nobody_ends_are_a_trap_where_no_launcher_is_above_them(
    flags: str, environ: dict[str, str], site: str, named: bool, tmp_path: Path
) -> None:
    (tmp_path / "slurm.conf").write_text(site)
    environ = {**environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    lines = resolve(flags, environ).warnings
    assert any(f"export {KILLS}=1" in line for line in lines) == named


@pytest.mark.parametrize(
    ("flags", "site", "named"),
    [
        ("--grace=60", "KillWait=30", "25 s"),
        ("--grace=30", "KillWait=30", ""),  # the defaults of both, which fit almost
        ("--grace=30", "KillWait=31", "26 s"),
        ("--grace=25", "KillWait=31", ""),
        ("--grace=31", "KillWait=60", ""),
        ("--grace=9", "KillWait=8", "4 s"),
    ],
)
def test_a_grace_that_slurm_does_not_give_is_a_trap(
    flags: str, site: str, named: str, tmp_path: Path
) -> None:
    (tmp_path / "slurm.conf").write_text(site)
    environ = {**ALONE_ON_ITS_NODE, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    lines = [line for line in resolve(f"--nproc=2 {flags}", environ).warnings if "KillWait" in line]
    assert [named in line for line in lines] == ([True] if named else [])


@pytest.mark.parametrize(
    ("environ", "result", "said"),
    [
        (FIRST, "", ["each of the 2 tasks on a node"]),
        (FIRST, "--result=r", ["each writes --result r", "each of the 2 tasks on a node"]),
        (ALONE_ON_ITS_NODE, "", []),
        (ALONE_ON_ITS_NODE, "--result=r", ["each of the 2 tasks (SLURM_STEP_NUM_TASKS), and each"]),
    ],
)
def test_worlds_side_by_side_are_a_trap_where_they_share_a_node_or_a_file(
    environ: dict[str, str], result: str, said: list[str]
) -> None:
    lines = resolve(f"--standalone --nproc=2 {result}", environ).warnings
    about = [line for line in lines if "--standalone makes" in line]
    assert [part in line for part, line in zip(said, about, strict=True)] == [True] * len(said)
