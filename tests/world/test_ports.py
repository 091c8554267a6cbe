"""MASTER_PORT: free, outside the ephemeral range, and never given to two launches."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.node import listeners
from spawnlaunch.world import host, master
from tests.support.launching import WORKERS, clean_environ, launch, reports


def test_a_held_port_is_given_to_nobody_else_until_it_is_let_go():
    first = host.hold_free_port(seed=0)
    second = host.hold_free_port(seed=0)
    assert first.port != second.port
    first.lock.close()
    second.lock.close()
    third = host.hold_free_port(seed=0)
    third.lock.close()
    assert third.port == first.port


def test_a_port_with_a_listener_is_passed_over():
    held = host.hold_free_port(seed=17)
    held.lock.close()
    with socket.create_server(("127.0.0.1", held.port)):
        assert host.hold_port(held.port) is None
        other = host.hold_free_port(seed=17)
        other.lock.close()
    assert other.port != held.port


@pytest.mark.parametrize(
    ("low", "high"), [(32768, 60999), (1024, 28000), (20000, 65535), (1024, 65535), (0, -1)]
)
def test_candidates_lie_outside_the_ephemeral_range_where_there_are_any(low, high):
    candidates = host.candidates_outside(low, high)
    assert len(candidates) > 0
    if (low, high) != (1024, 65535):
        assert not [port for port in candidates if low <= port <= high]


def test_where_the_kernel_takes_all_but_one_that_one_is_left():
    assert list(host.candidates_outside(1025, 65535)) == [1024]  # the least without privilege


@given(st.text() | st.integers(0, 10**12).map(str) | st.from_regex(r"[0-9]{1,9}\.[0-9a-z]*"))
def test_the_port_of_a_job_is_one_that_a_launch_may_take(job: str):
    assert master.port_of(job) in master.FREE_PORTS
    assert master.port_of(job) == master.port_of(job)


def test_eight_launches_at_once_get_eight_ports():
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: launch("--nproc", 1, WORKERS / "report.py"), range(8)))
    found = [int(reports(d.stdout)[0]["environ"]["MASTER_PORT"]) for d in done]
    low, high = map(int, Path(host.EPHEMERAL).read_text().split())
    assert len(set(found)) == 8
    assert not [port for port in found if low <= port <= high]


def test_who_has_a_port_that_rank_0_cannot_have_is_named():
    """A process that listens, which this test is here; or a launch that has chosen the port."""
    held = host.hold_free_port()
    assert listeners.who(held.port).startswith("another launch")
    held.lock.close()
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.create_server((address, held.port), family=family):
            assert listeners.who(held.port).endswith(f" (pid {os.getpid()})")


@pytest.mark.parametrize("tasks", [1, 4])
def test_a_task_that_is_rank_0_says_who_has_its_port_and_who_waits_for_it(tasks: int):
    """All tasks have the port by themselves: nobody can tell the others another one."""
    step = {
        "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
        "SLURM_STEP_NUM_TASKS": f"{tasks}", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": f"{tasks}", "SLURM_STEP_NODELIST": "node1",
    }  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = launch("--master-port", port, WORKERS / "report.py", environ=clean_environ(**step))
    assert done.returncode == 2, done.stderr
    assert f"(pid {os.getpid()})" in done.stderr
    assert ("--kill-on-bad-exit=1" in done.stderr) == (tasks > 1)
