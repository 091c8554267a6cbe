"""Isolated CPUs are left to those who name them, and who has nothing else is told."""

import pytest

from tests.machines.small import TWO_NODES, small
from tests.machines.tree import Gpu, Machine
from tests.support.explained import explain

ON_0, ON_1 = Gpu(0, "0-1"), Gpu(1, "2-3")


def isolating(cpus: str, *gpus: Gpu, mask: str = "", group: str = "") -> Machine:
    """Four cores on two NUMA nodes, of which these are isolated; a mask and a cpuset, or none."""
    files = {"sys/devices/system/cpu/isolated": cpus, "sys/devices/system/cpu/nohz_full": "0-3"}
    if mask:
        files["proc/self/status"] = f"Cpus_allowed_list:\t{mask}\nMems_allowed_list:\t0-1"
    if group:
        files |= {"proc/mounts": "cgroup2 /cg cgroup2 rw 0 0", "proc/self/cgroup": "0::/",
                  "cg/cpuset.cpus.effective": group}  # fmt: skip
    return small(4, TWO_NODES, gpus, files=files)


@pytest.mark.parametrize(
    ("machine", "arguments", "cpus"),
    [
        (isolating("2-3", ON_0, ON_0), "--nproc gpu", ["0", "1"]),
        (isolating("2-3"), "--nproc cpu", ["0", "1"]),
        (isolating("1,3"), "--nproc 2", ["0", "2"]),
        (isolating("1-3", mask="0,2-3"), "--nproc 1", ["0"]),
        (isolating("1", group="0-1"), "--nproc 1", ["0"]),
        (isolating(""), "--nproc 2", ["0-1", "2-3"]),
        (isolating("2-3"), "--nproc 2 --bind node", ["0-1", "0-1"]),
        (isolating("2-3"), "--nproc 1 --reserve-cpus 0", ["1"]),
        (isolating("2-3"), "--nproc 1 --reserve-cpus 0-1", ["0-1"]),
        # Who names them gets them.
        (isolating("2-3"), "--nproc 2 --bind 0-1:2-3", ["0-1", "2-3"]),
        (isolating("2-3", mask="2-3"), "--nproc 2", ["2", "3"]),
    ],
)
def test_isolated_cpus_are_left_out_where_others_are_allowed(
    machine: Machine, arguments: str, cpus: list[str]
) -> None:
    told = explain(machine, arguments)
    assert [worker["cpus"] for worker in told["workers"]] == cpus


def test_they_are_counted_for_nothing() -> None:
    (worker,) = explain(isolating("1-3"), "--nproc cpu --bind none")["workers"]
    assert worker["threads"] == 1
    told = explain(isolating("2-3"), "--nproc 2")
    assert {worker["env"]["SPAWNLAUNCH_NODE_CPUS"] for worker in told["workers"]} == {"0-1"}
    assert (told["node"]["isolated"], told["node"]["cpus_allowed"]) == ("2-3", "0-3")
    assert not [line for line in told["warnings"] if "isolat" in line or "the mask" in line]


@pytest.mark.parametrize(
    ("machine", "arguments", "who", "cure"),
    [
        (isolating("2-3", mask="2-3"), "--nproc 1", "local rank 0", "start with taskset -c 0-1"),
        (isolating("2-3", mask="2-3"), "--nproc 1 --bind none", "local rank 0",
         "start with taskset -c 0-1"),
        (isolating("2-3", ON_1, mask="2-3"), "--nproc 1", "local rank 0", "boot without isolcpus"),
        (isolating("2-3", mask="2-3", group="2-3"), "--nproc 2", "local ranks 0-1",
         "boot without isolcpus"),
        (isolating("2-3"), "--nproc 2 --bind 0:2-3", "local rank 1",
         "name some of the CPUs 0-1 in --bind"),
    ],
)  # fmt: skip
def test_ranks_with_isolated_cpus_alone_are_told(
    machine: Machine, arguments: str, who: str, cure: str
) -> None:
    lines = [line for line in explain(machine, arguments)["warnings"] if "isolated" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"{who}: the CPUs 2-3 are isolated (isolcpus")
    assert cure in lines[0]


@pytest.mark.parametrize(
    ("isolated", "gpus", "ranks", "named"),
    [
        ("1-3", (ON_1,), 1, "2-3"),
        ("1-3", (ON_0, ON_1), 2, "1-3"),  # with 2-3 alone the first rank would be away
        ("1-3", (), 3, "1-3"),
    ],
)
def test_isolcpus_is_named_where_it_has_made_the_mask_and_the_cure_works(
    isolated: str, gpus: tuple[Gpu, ...], ranks: int, named: str
) -> None:
    machine = isolating(isolated, *gpus, mask="0")
    (line,) = [each for each in explain(machine, f"--nproc {ranks}")["warnings"] if "start" in each]
    assert "isolcpus" in line
    assert line.endswith(f"start with taskset -c {named}")
    told = explain(isolating(isolated, *gpus, mask=named), f"--nproc {ranks}")
    cpus = [worker["cpus"] for worker in told["workers"]]
    assert len(set(cpus)) == ranks
    assert {worker["locality"] for worker in told["workers"]} == {"local"}
    assert not [line for line in told["warnings"] if "taskset -c 0" in line]


def test_where_no_mask_is_good_for_all_devices_a_boot_is_the_cure() -> None:
    lines = explain(isolating("2-3", ON_0, ON_1, mask="0-1"), "--nproc 2")["warnings"]
    (line,) = [each for each in lines if "isolcpus" in each]
    assert line.endswith("start after a boot without isolcpus for CPUs next to devices")


def test_a_mask_that_leaves_out_others_too_is_somebody_elses() -> None:
    lines = explain(isolating("3", ON_1, mask="0-1"), "--nproc 1")["warnings"]
    assert any(line.endswith("or with more CPUs in its list") for line in lines)
    assert not any("isolcpus" in line for line in lines)
