"""Nodes by hand: the flags, their defaults, and what they cannot say together."""

from typing import Any

import pytest

from spawnlaunch.base.errors import UsageError
from tests.world.resolving import STEP_OF_TWO, explained, resolve

SECOND_OF_TWO = "--no-gang --nproc 2 --nnodes 2 --node-rank 1"


@pytest.mark.parametrize(
    ("flags", "mode", "world"),
    [
        (f"{SECOND_OF_TWO} --master-addr node0", "node",
         {"rank": 2, "world_size": 4, "local_rank": 0, "local_world_size": 2, "node_rank": 1,
          "nnodes": 2, "master_addr": "node0", "master_port": 29500, "run_id": "none"}),
        (f"{SECOND_OF_TWO} --master-addr a --master-port 5555", "node", {"master_port": 5555}),
        (f"{SECOND_OF_TWO} --rdzv-backend c10d --rdzv-endpoint node0", "node",
         {"master_addr": "node0", "master_port": 29400}),
        (f"{SECOND_OF_TWO} --rdzv-endpoint node0:1234 --rdzv-id mine", "node",
         {"master_addr": "node0", "master_port": 1234, "run_id": "mine"}),
        (f"{SECOND_OF_TWO} --rdzv-endpoint [fd00::2]:1234", "node",
         {"master_addr": "fd00::2", "master_port": 1234}),
        (f"{SECOND_OF_TWO} --master-addr a --rdzv-endpoint a:29500", "node",
         {"master_addr": "a", "master_port": 29500}),
        ("--nproc 2 --nnodes 2:2 --node-rank 1 --master-addr a", "node", {"nnodes": 2}),
        ("--nnodes 1:2 --master-addr a", "node", {"nnodes": 2, "node_rank": None}),
        ("--nnodes 2 --node-rank 1 --rdzv-endpoint a:5555", "node", {"master_port": 5555}),
        ("--nnodes 2 --rdzv-backend static --rdzv-endpoint a:5555", "node", {"master_port": 5555}),
        ("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint a:5555", "node", {"master_port": 0}),
        ("--nproc 2 --local-addr 127.0.0.2", "local", {"master_addr": "127.0.0.2"}),
        ("--nproc 2 --local-addr [::1]", "local", {"master_addr": "::1"}),
        ("--local-addr 127.0.0.2 --master-addr 127.0.0.3 --master-port 23456", "local",
         {"master_addr": "127.0.0.3"}),
        ("--nproc 2 --nnodes 1:1", "local", {"nnodes": 1, "master_addr": "127.0.0.1"}),
        ("--nproc 2 --nnodes 1 --node-rank 0 --master-addr a", "local", {"master_addr": "a"}),
        ("--nproc 2 --standalone", "local", {"world_size": 2, "master_addr": "127.0.0.1"}),
        ("--nproc 2 --standalone --nnodes 1", "local", {"world_size": 2}),
        ("--nproc 2 --master-port 23456", "local", {"master_port": 23456}),
        ("--rdzv-backend c10d --rdzv-endpoint localhost:29411", "local", {"master_port": 29411}),
    ],
)  # fmt: skip
def test_what_the_flags_mean(flags: str, mode: str, world: dict[str, Any]) -> None:
    found = resolve(flags, {}).world
    assert found.mode == mode
    assert {name: getattr(found, name) for name in world} == world


@pytest.mark.parametrize(
    "flags",
    ["", "--standalone", "--nnodes 1 --rdzv-endpoint localhost:0", "--master-port 0"],
)
def test_any_free_port_is_chosen_on_one_machine(flags: str) -> None:
    assert 1024 <= explained(f"--nproc 2 {flags}", {}).world.master_port < 32768


def refusal(flags: str, **environ: str) -> str:
    """The error that refuses these flags."""
    with pytest.raises(UsageError) as refused:
        resolve(flags, environ)
    return str(refused.value)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            "--no-gang --nnodes 2 --rdzv-backend c10d --rdzv-endpoint node0:29400",
            "the rank of this node, of 2; use --node-rank N, from 0 to 1, on each",
        ),
        ("--nnodes 1 --node-rank 3", "cannot be with 1 nodes"),
        ("--no-gang --nnodes 1:4 --node-rank 0 --master-addr a", "leave --no-gang out"),
        ("--standalone --node-rank 1", "--standalone is one machine, and --node-rank 1"),
        (f"{SECOND_OF_TWO} --rdzv-endpoint node0:0", "use --master-port N, the same everywhere"),
        (
            f"{SECOND_OF_TWO} --master-addr a --rdzv-endpoint b",
            "--master-addr a, but --rdzv-endpoint has b; leave one of the two out",
        ),
        (
            f"{SECOND_OF_TWO} --master-port 1 --rdzv-endpoint b:2",
            "--master-port 1, but --rdzv-endpoint has 2; leave one of the two out",
        ),
        (f"{SECOND_OF_TWO} --master-addr a --world-size 8", "leave --world-size out"),
        ("--nproc 2 --local-world-size 3", "leave --local-world-size out"),
    ],
)
def test_what_the_flags_cannot_say(flags: str, said: str) -> None:
    assert said in refusal(flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--node-rank 2", "use --node-rank N, from 0 to 1"),
    ],
)
def test_flags_that_contradict_the_manager(flags: str, said: str) -> None:
    assert said in refusal(flags, **STEP_OF_TWO)


def test_flags_that_agree_with_the_manager_change_nothing() -> None:
    agreeing = resolve("--nproc 2 --nnodes 2 --node-rank 1", STEP_OF_TWO)
    assert agreeing.world == resolve("--nproc 2", STEP_OF_TWO).world
