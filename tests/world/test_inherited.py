"""What an outer launcher, a profile or a batch script left: replaced and said, or kept."""

from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.world.identity import Resolution
from tests.support.launching import (
    LAUNCHER,
    MPICH_RANK,
    SLURM_TASK,
    WORKERS,
    clean_environ,
    filed_reports,
    run,
)
from tests.support.slurm_variables import OWN_JOB
from tests.world.resolving import explained, of_job, resolve

REPLACED = "replaced what an outer launcher or a profile left: "
MASTER = {"MASTER_ADDR": "node0i", "MASTER_PORT": "25900"}
TWO_HERE = "--nproc 2"


def master(found: Resolution) -> tuple[str, int]:
    """The address and the port of rank 0."""
    return found.world.master_addr, found.world.master_port


def lost(found: Resolution, question: str) -> list[tuple[str, str]]:
    """(value, source) of each candidate that was not taken."""
    return [(each.value, each.source) for each in found.sources[question].rejected]


@pytest.mark.parametrize(
    "beside",
    [
        {},
        {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0"},
        {"RANK": "", "WORLD_SIZE": ""},
        {"RANK": "0", "LOCAL_RANK": "0", "NODE_RANK": "0"},  # $SLURM_PROCID in the batch script
        {"WORLD_SIZE": "1"},
        {"LOCAL_WORLD_SIZE": "2"},
        {"GROUP_WORLD_SIZE": "1"},
        {"TORCHELASTIC_RESTART_COUNT": "3"},
        {"TORCHELASTIC_USE_AGENT_STORE": "True"},
    ],
    ids=lambda beside: " ".join(beside),
)
def test_a_master_is_kept_whatever_this_rank_has_beside_it(beside: dict[str, str]) -> None:
    found = explained("", {**SLURM_TASK, **MASTER, **beside})
    assert (found.world.rank, found.world.world_size) == (2, 3)
    assert master(found) == ("node0i", 25900)
    assert found.sources["master_port"].source == "MASTER_PORT"
    assert "MASTER_" not in " ".join(of_job(found))


@pytest.mark.parametrize("stale", [{"RANK": "0"}, {"TORCHELASTIC_USE_AGENT_STORE": "True"}])
def test_a_rank_variable_that_contradicts_is_replaced_and_said(stale: dict[str, str]) -> None:
    ((name, value),) = stale.items()
    assert of_job(explained("", {**SLURM_TASK, **stale})) == (f"{REPLACED}{name}={value}",)


def test_what_an_outer_launcher_left_is_replaced_as_a_whole_and_said() -> None:
    found = explained("", {**SLURM_TASK, **MASTER, "RANK": "0", "TORCHELASTIC_RUN_ID": "none"})
    assert found.world.master_addr == "node0"
    assert found.world.master_port != 25900
    left = "RANK=0 TORCHELASTIC_RUN_ID=none MASTER_ADDR=node0i MASTER_PORT=25900"
    assert of_job(found) == (REPLACED + left,)
    for question, value, name in (
        ("rank", "0", "RANK"),
        ("master_addr", "node0i", "MASTER_ADDR"),
        ("master_port", "25900", "MASTER_PORT"),
    ):
        assert (value, name) in lost(found, question)


def test_on_one_machine_the_replaced_master_is_named_too() -> None:
    left = {**MASTER, "RANK": "1"}
    found = explained(TWO_HERE, left)
    assert of_job(found) == (f"{REPLACED}RANK=1 MASTER_ADDR=node0i MASTER_PORT=25900",)
    assert lost(found, "master_port") == [("25900", "MASTER_PORT")]
    assert (len(found.notices), found.exports) == (1, {})  # of the way to other nodes
    flag = explained(f"{TWO_HERE} --master-port 23456", left)
    assert of_job(flag) == (f"{REPLACED}RANK=1 MASTER_ADDR=node0i",)


@pytest.mark.parametrize(
    "address",
    ["NODE0", "node0.site", "node0i", "node0-ib.site", "ib-node0", "10.1.2.3 ", "fd00::2"],
)
def test_an_address_that_may_be_rank_0s_is_kept(address: str) -> None:
    found = explained("", {**SLURM_TASK, "MASTER_ADDR": address})
    assert found.world.master_addr == address.strip()


def test_an_address_is_kept_where_no_manager_knows_better() -> None:
    found = resolve("--nnodes=2 --node-rank=1", {"MASTER_ADDR": "elsewhere"})
    assert found.sources["master_addr"].value == "elsewhere"


@pytest.mark.parametrize(
    "address",
    [
        "node1",
        "node00",
        "mynode0",
        "elsewhere",
        "localhost",
        "127.0.0.1",
        "::1",
        "10.1.2.3 10.1.2.4",
    ],
)
def test_an_address_that_cannot_be_rank_0s_is_replaced_and_said(address: str) -> None:
    environ = {**SLURM_TASK, "MASTER_ADDR": address, "MASTER_PORT": "25900"}
    found = explained("", environ)
    assert master(found) == ("node0", 25900)
    (line,) = of_job(found)
    assert line.startswith(f"replaced MASTER_ADDR={address}, ")
    typed = address.split()[0]
    flag = explained(f"--master-addr {typed}", environ)
    assert (flag.world.master_addr, of_job(flag)) == (typed, ())


def test_an_exported_port_comes_before_one_that_slurm_has_reserved() -> None:
    reserved = {"MASTER_PORT": "25900", "SLURM_STEP_RESV_PORTS": "12000-12003"}
    found = explained("", {**SLURM_TASK, **reserved})
    assert found.sources["master_port"].source == "MASTER_PORT"
    assert lost(found, "master_port")[0] == (12000, "SLURM_STEP_RESV_PORTS")


def test_rank_0_says_that_an_address_is_not_its_own() -> None:
    first = {"SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_GTIDS": "0,1"}
    alone = {**SLURM_TASK, **first, "SLURM_JOB_ID": OWN_JOB}
    found = explained("", {**alone, "MASTER_ADDR": "198.51.100.7"})
    assert found.world.master_addr == "198.51.100.7"
    (line,) = of_job(found)
    assert line.startswith("MASTER_ADDR=198.51.100.7 is not an address")


def test_what_is_not_known_here_contradicts_nothing() -> None:
    found = explained("", {**MPICH_RANK, **MASTER, "NODE_RANK": "1", "GROUP_WORLD_SIZE": "2"})
    assert found.world.master_addr == "node0i"
    assert not any(line.startswith(REPLACED) for line in of_job(found))


def nested(outer: list[str], directory: Path, **environ: str) -> tuple[list[dict[str, Any]], str]:
    """What the workers of launches inside the workers of `outer` report, and what is said."""
    inner = f"{' '.join(LAUNCHER)} --nproc 2 {WORKERS}/meet.py"
    done = run(
        *outer,
        "sh",
        "-c",
        f"mkdir $REPORT_DIR/$RANK; REPORT_DIR=$REPORT_DIR/$RANK {inner}",
        environ=clean_environ(REPORT_DIR=str(directory), **environ),
    )
    assert done.returncode == 0, done.stderr
    return [each for rank in "01" for each in filed_reports(directory / rank)], done.stderr


def test_a_launch_inside_each_worker_is_a_job_of_its_own(tmp_path: Path) -> None:
    workers, said = nested([*LAUNCHER, "--nproc", "2", "--no-python"], tmp_path)
    assert [worker["rank"] for worker in workers] == [0, 1, 0, 1]
    assert [worker["proved"] for worker in workers] == [True] * 4
    assert said.count(REPLACED) == 2
    first, second = workers[0]["environ"], workers[2]["environ"]
    for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"):
        assert first[name] != second[name]
    for worker in workers:
        assert worker["environ"]["WORLD_SIZE"] == "2"
        assert worker["environ"]["TORCHELASTIC_USE_AGENT_STORE"] == "False"
