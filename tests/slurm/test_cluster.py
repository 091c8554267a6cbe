"""The cluster that other tests rely on is a real one, and nothing of it outlives its session."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.slurm import REPOSITORY, Slurm, processes_in, require_slurm
from tests.support.patience import PATIENCE_S
from tests.support.processes import until

require_slurm()
pytestmark = pytest.mark.full


def test_a_step_on_two_nodes_sees_two_hosts_that_know_no_others(slurm: Slurm) -> None:
    names = "import socket; print(socket.gethostname(), socket.gethostbyname('node3'), flush=True)"
    resolve = f"{names}; socket.gethostbyname('elsewhere')"
    step = slurm.run(["srun", "-N2", "-n3", "--label", sys.executable, "-c", resolve])
    hosts = ["0: node0 10.11.12.13", "1: node0 10.11.12.13", "2: node1 10.11.12.13"]
    assert sorted(step.stdout.splitlines()) == hosts
    assert step.stderr.count("gaierror:") == 3


def test_what_a_test_leaves_running_is_cancelled_for_the_next(slurm: Slurm) -> None:
    slurm.submit("#!/bin/sh\nsleep 600\n", "--nodes=4")
    slurm.cancel_all()
    assert slurm.idle_nodes() == list(slurm.nodes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_after_the_session_is_killed(number: signal.Signals) -> None:
    before = traces()
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert session.stdout is not None
    try:
        namespace = int(session.stdout.readline())
        until(lambda: processes(namespace).count("sleep") == 2, "the step runs")
        session.send_signal(number)
        session.wait(PATIENCE_S)
        until(lambda: processes(namespace) == [], "nothing is left")
    finally:
        session.kill()
        session.wait()
        session.stdout.close()
    assert traces() == before


SESSION = """
import time
from tests.cluster.slurm import start
cluster = start()
step = cluster.popen(["srun", "--nodes=2", "sleep", "600"])
print(cluster.pid_namespace(), flush=True)
time.sleep(600)
"""


def processes(namespace: int) -> list[str]:
    """Names of the processes in this PID namespace."""
    found = []
    for process in processes_in(namespace):
        with suppress(FileNotFoundError, ProcessLookupError):
            found.append((process / "comm").read_text().strip())
    return found


def traces() -> dict[str, object]:
    """What a cluster could leave on this machine besides processes.

    Other tests make network namespaces and devices of other names meanwhile.
    """
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    watched = ["/run", "/dev/shm", "/var/log", "/var/spool", "/var/lib", "/tmp"]
    files = [path for directory in watched for path in Path(directory).glob("*")]
    return {
        "mounts": [line for line in mounts if not re.search("/run/netns/(?!node)", line)],
        "devices": {"bridge", *Slurm.nodes}.intersection(os.listdir("/sys/class/net")),
        "cgroups": sorted(str(path) for path in Path("/sys/fs/cgroup").rglob("*slurm*")),
        "hosts": Path("/etc/hosts").read_bytes(),
        "files": sorted(str(path) for path in files if re.search("slurm|munge", path.name)),
    }
