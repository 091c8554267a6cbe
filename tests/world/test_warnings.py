"""Traps are named where they bite, and nowhere else."""

from __future__ import annotations

import pytest

from spawnlaunch.world.identity import Capacity
from tests.support.launching import SLURM_TASK
from tests.world.resolving import of_job, resolve

FIRST = SLURM_TASK | {
    "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_GTIDS": "0,1", "SLURMD_NODENAME": "node0",
}  # fmt: skip
ALONE_ON_ITS_NODE = FIRST | {
    "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_GTIDS": "0",
}  # fmt: skip
OF_EIGHT = FIRST | {
    "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_TASKS_PER_NODE": "8",
    "SLURM_STEP_NODELIST": "node0", "SLURM_GTIDS": "0,1,2,3,4,5,6,7",
}  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "environ", "devices", "named"),
    [
        ("", FIRST, 1, True),
        ("", FIRST, 2, False),
        ("", FIRST, 0, False),
        ("", ALONE_ON_ITS_NODE, 1, False),
        ("--virtual-local-rank", FIRST, 1, False),
        ("--nproc=1", ALONE_ON_ITS_NODE, 1, False),
        ("", OF_EIGHT, 2, True),  # srun --gpu-bind=closest
        ("", OF_EIGHT, 7, True),
        ("", OF_EIGHT, 8, False),
    ],
)
def test_fewer_devices_than_tasks_are_a_trap_where_tasks_are_beside_each_other(
    flags: str, environ: dict[str, str], devices: int, named: bool
) -> None:
    lines = of_job(resolve(flags, environ, capacity=Capacity(devices, 2)))
    assert any("--virtual-local-rank" in line for line in lines) == named


@pytest.mark.parametrize(
    ("devices", "by", "value", "vendor", "said"),
    [
        (2, "ROCR_VISIBLE_DEVICES", "4,5", "amd",
         "each of the 8 tasks on this node sees 2 devices (ROCR_VISIBLE_DEVICES=4,5 here), so "
         "cuda:LOCAL_RANK fails where LOCAL_RANK is above 1; "),
        (2, "ZE_AFFINITY_MASK", "4,5", "intel", "so xpu:LOCAL_RANK fails"),
        (4, "", "", "nvidia", "sees 4 devices, so cuda:LOCAL_RANK fails where LOCAL_RANK is above"),
    ],
)  # fmt: skip
def test_the_trap_is_told_with_what_shows_so_few_devices(
    devices: int, by: str, value: str, vendor: str, said: str
) -> None:
    environ = OF_EIGHT | ({by: value} if by else {})
    lines = of_job(resolve("", environ, capacity=Capacity(devices, 2, by, vendor)))
    (line,) = (line for line in lines if "--virtual-local-rank" in line)
    assert said in line
