"""How launchers meet, what is left by others, and what is typed instead: at each limit."""

from __future__ import annotations

import re

import pytest

from spawnlaunch.base.errors import UsageError
from tests.world.resolving import STEP_OF_TWO, resolve

STEP = STEP_OF_TWO | {"SLURM_JOB_ID": "7"}  # nothing holds its port here
THREE = STEP | {
    "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NODELIST": "node[0-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
}  # fmt: skip
EXPORTED = STEP | {"MASTER_ADDR": "node0", "MASTER_PORT": "23456"}
BY_ADDRESS = STEP | {"SLURM_STEP_NODELIST": "10.0.0.[1-2]", "SLURMD_NODENAME": "10.0.0.2"}
HAND = "--nproc=2 --nnodes=2 --master-addr=node0"
C10D = "--nproc=2 --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=node0:29400"
# How two launchers meet, where nothing below says otherwise.
USUAL = {
    "host": "node0", "port": 29500, "ports": 8, "is_hub": False, "node_rank": -1, "most": 2,
    "spares": 0, "expected": (), "return_s": 0.0, "master_addr": "", "master_port": 0,
}  # fmt: skip
HUB = {"is_hub": True, "node_rank": 0, "master_addr": "node0"}
BY_C10D = {"port": 29400, "ports": 1}
OF_STEP = {"port": 20707, "node_rank": 1, "expected": ("node0", "node1")}


@pytest.mark.parametrize(
    ("flags", "environ", "told"),
    [
        (f"{HAND} --node-rank=0 --master-port=23456", {},
         {**HUB, "port": 22319, "master_port": 23456}),
        (f"{HAND} --node-rank=1 --master-port=23456", {},
         {"port": 22319, "node_rank": 1, "master_port": 23456}),
        (f"{HAND} --node-rank=0 --master-port=0", {}, HUB),
        (f"{HAND} --node-rank=0 --max-restarts=1", {}, {**HUB, "return_s": 60.0}),
        (f"{HAND} --node-rank=0 --max-restarts=1 --return-timeout=0", {}, HUB),
        (f"{HAND} --node-rank=0 --max-restarts=1 --return-timeout=7", {}, {**HUB, "return_s": 7.0}),
        ("--nproc=2 --nnodes=2 --master-addr=node1", {}, {"host": "node1", "is_hub": None}),
        ("--nproc=2 --nnodes=2 --master-addr=node9", {}, {"host": "node9"}),
        (f"{C10D} --node-rank=0", {}, {**BY_C10D, "node_rank": 0}),
        (f"{C10D} --rdzv-conf=is_host=1", {}, {**BY_C10D, "is_hub": True}),
        (f"{C10D} --node-rank=0 --rdzv-conf=is_host=0", {}, {**BY_C10D, "node_rank": 0}),
        ("--nproc=2 --nnodes=2 --node-rank=0 --rdzv-endpoint=node0:29400", {},
         {**HUB, "port": 28729, "master_port": 29400}),
        ("--nproc=2", STEP, OF_STEP),
        ("--nproc=2 --max-restarts=2", STEP, OF_STEP),
        ("--nproc=2 --master-port=0", STEP, OF_STEP),
        ("--nproc=2 --spares=1", THREE,
         {**OF_STEP, "spares": 1, "expected": ("node0", "node1", "node2")}),
        ("--nproc=2", EXPORTED, {**OF_STEP, "master_port": 23456}),
        ("--nproc=2", BY_ADDRESS,
         {**OF_STEP, "host": "10.0.0.1", "expected": ("10.0.0.1", "10.0.0.2")}),
    ],
)  # fmt: skip
def test_the_launchers_meet_where_all_of_them_know(
    flags: str, environ: dict[str, str], told: dict[str, object]
) -> None:
    gathering = resolve(flags, environ).gathering
    assert gathering is not None
    assert {name: getattr(gathering, name) for name in USUAL} == {**USUAL, **told}


def test_a_pods_launcher_is_started_again() -> None:
    flags = f"{HAND} --node-rank=0"
    for environ, again in (({}, False), ({"KUBERNETES_SERVICE_HOST": "x"}, True)):
        gathering = resolve(flags, environ).gathering
        assert gathering is not None
        assert gathering.is_restarted == again


@pytest.mark.parametrize(
    ("flags", "rank"),
    [
        ("--nproc=2 --nnodes=2 --master-addr=node1", 0),  # this one may be the hub
        ("--nproc=2 --nnodes=2 --master-addr=node9", 2),
        (f"{C10D} --rdzv-conf=is_host=1", 0),
        (f"{C10D} --rdzv-conf=is_host=0", 2),
        (f"{HAND} --node-rank=1", 2),
    ],
)
def test_before_they_have_met_only_one_that_may_be_the_hub_speaks_as_rank_0(
    flags: str, rank: int
) -> None:
    assert resolve(flags, {}).world.rank == rank


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--return-timeout=9", "without restarts none may"),
        ("--return-timeout=9 --max-restarts=1", "Slurm starts its tasks once"),
    ],
)
def test_nobody_comes_back_whom_nobody_starts(flags: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        resolve(f"--nproc=2 {flags}", STEP)


TWO = STEP | {
    "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_LOCALID": "1",
    "SLURM_PROCID": "3",
}  # fmt: skip
CPUS = {"SLURM_CPUS_ON_NODE": "8", "SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_CPUS_PER_NODE": "8(x2)"}
SHELL = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[0-1]", "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_CPUS_PER_NODE": "8(x2)",
}  # fmt: skip
PER_NODE = "srun --nodes=2 --ntasks=2 --ntasks-per-node=1"
AS_THE_JOB = "srun --kill-on-bad-exit=1"  # without which ranks wait for one that has failed
PER_RANK = f"{AS_THE_JOB} --nodes=2 --ntasks=4"


@pytest.mark.usefixtures("typed_as_launcher")
@pytest.mark.parametrize(
    ("flags", "environ", "starters"),
    [
        ("--nproc=2", TWO, [PER_NODE, PER_RANK]),
        ("--nproc=2 --max-restarts=1", TWO, [PER_NODE]),
        ("--nproc=2", TWO | CPUS,
         [f"{PER_NODE} --cpus-per-task=8 --gpus-per-node=4", PER_RANK]),
        ("--nproc=2 --max-restarts=1", TWO | CPUS | {"SLURM_JOB_CPUS_PER_NODE": "8,4"},
         [f"{PER_NODE} --gpus-per-node=4"]),
        ("--nproc=2 --max-restarts=1", TWO | CPUS | {"SLURM_GPUS": "8"},
         [f"{PER_NODE} --cpus-per-task=8"]),
        ("", SHELL | {"SLURM_NTASKS": "4"}, [AS_THE_JOB]),
        ("--nproc=2", SHELL | {"SLURM_NTASKS": "4"}, [PER_NODE]),
        ("--nproc=2", SHELL, [PER_NODE]),
        ("", SHELL | {"SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "2",
                      "SLURM_JOB_NODELIST": "node0"}, [AS_THE_JOB]),
    ],
)  # fmt: skip
def test_what_is_typed_instead_starts_as_many_as_there_are(
    flags: str, environ: dict[str, str], starters: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(flags, environ)
    assert re.findall(r"(srun[^;]*?) python launcher", str(caught.value)) == starters
