"""MASTER_PORT: free, outside the ephemeral range, and never given to two launches."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spawnlaunch.node import proc
from spawnlaunch.world import host, master
from tests.support.launching import WORKERS, clean_environ, launch
from tests.support.required import require_root
from tests.world.resolving import STEP_OF_TWO


def test_a_held_port_is_given_to_nobody_else_until_it_is_let_go():
    first = host.hold_free_port(seed=0)
    second = host.hold_free_port(seed=0)
    assert first.port != second.port
    low, high = map(int, Path(host.EPHEMERAL).read_text().split())
    assert not {first.port, second.port} & {*range(low, high + 1), *master.COMPUTED_PORTS}
    first.lock.close()
    second.lock.close()
    third = host.hold_free_port(seed=0)
    third.lock.close()
    assert third.port == first.port


HOLDS = """
import os, socket, sys
os.setuid(65534)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
sock.bind("\\0spawnlaunch-port-" + sys.argv[1])
if "listens" in sys.argv:
    sock.listen(0)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["listens", "is silent"])
def test_a_name_that_another_user_has_is_no_claim_to_the_port_that_was_asked_for(how: str):
    require_root()
    port = host.hold_free_port(seed=4).port
    words = [sys.executable, "-S", "-c", HOLDS, str(port), how]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE) as stranger:
        assert stranger.stdout
        assert stranger.stdout.readline()
        assert host.hold_port(port)
        assert host.hold_free_port(seed=4).port != port  # it may be another user's launch
        stranger.communicate()


def test_a_port_with_a_listener_is_passed_over():
    held = host.hold_free_port(seed=17)
    held.lock.close()
    with socket.create_server(("127.0.0.1", held.port)):
        assert host.hold_port(held.port) is None
        other = host.hold_free_port(seed=17)
        other.lock.close()
    assert other.port != held.port


@settings(max_examples=20)
@given(*[st.integers(0, 65535)] * 2, st.integers(0, 2**32 - 1))
@example(1024, 65535, 0)  # the kernel takes all
@example(0, -1, 0)  # it is not known which
def test_all_ports_outside_the_ephemeral_range_are_candidates(low: int, high: int, seed: int):
    candidates = list(host.candidates(low, high, seed))
    outside, last = candidates[: -len(master.CHOSEN_PORTS)], candidates[-len(master.CHOSEN_PORTS) :]
    assert set(outside) == set(range(1024, 65536)) - set(range(low, high + 1))
    assert last == list(master.CHOSEN_PORTS)


@given(st.text() | st.integers(0, 10**12).map(str) | st.from_regex(r"[0-9]{1,9}\.[0-9a-z]*"))
def test_the_port_of_a_job_is_one_that_a_launch_may_take(job: str):
    assert master.port_of(job) in master.COMPUTED_PORTS
    assert master.port_of(job) == master.port_of(job)


def test_who_has_a_port_that_rank_0_cannot_have_is_named():
    """A process that listens, which this test is here; or a launch that has chosen the port."""
    held = host.hold_free_port()
    assert proc.describe_listener(held.port).startswith("another launch")
    held.lock.close()
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.create_server((address, held.port), family=family):
            assert proc.describe_listener(held.port).endswith(f" (pid {os.getpid()})")


@pytest.mark.parametrize("tasks", [1, 4])
def test_a_task_that_is_rank_0_says_who_has_its_port_and_who_waits_for_it(tasks: int):
    """All tasks have the port by themselves: nobody can tell the others another one."""
    sizes = {"SLURM_STEP_NUM_TASKS": f"{tasks}", "SLURM_STEP_TASKS_PER_NODE": f"{tasks}"}
    one_node = {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "node1"}
    step = STEP_OF_TWO | sizes | one_node | {"SLURM_PROCID": "0", "SLURM_NODEID": "0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = launch("--master-port", port, WORKERS / "report.py", environ=clean_environ(**step))
    assert done.returncode == 2, done.stderr
    assert f"(pid {os.getpid()})" in done.stderr
    assert ("--kill-on-bad-exit=1" in done.stderr) == (tasks > 1)
