"""One command starts the launchers of all nodes: lines of the documentation, and of managers.

What is not here has a stand-in: ssh and qrsh, and the variables of a PBS or Grid Engine job.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spawnlaunch.world.managers import hosts
from tests.multinode.namespaces import Network, network_of
from tests.support.launching import LAUNCHER, ROOT, clean_environ, open_mpi
from tests.support.patience import PATIENCE_S
from tests.support.required import require_programs

require_programs("clush", "pdsh", "mpirun", package="clustershell pdsh openmpi-bin")
pytestmark = pytest.mark.full

STARTERS = ("Open MPI", "pdsh", "ClusterShell", "PBS", "Grid Engine")
# A remote shell: flags, some with a value, a host, and what to do there; ssh takes nothing along.
REMOTE = """#!/bin/sh
until case "$1" in {hosts}) true;; *) false;; esac; do shift; done
host=$1; shift
case $host in {names} esac
exec {environ} ip netns exec {mark}$name unshare --uts sh -c "hostname node$name; $*"
"""
# The last rank waits for the others, whom its failure ends.
WORKER = """import os, sys, time
rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
open(f"{directory}/rank-{{rank}}", "w").write(size)
while rank == "3" and not all(
    os.path.exists(f"{directory}/rank-{{n}}") and open(f"{directory}/rank-{{n}}").read()
    for n in range(int(size))
):
    time.sleep(0.05)
sys.exit({status} if rank == "3" else 0)
"""


def line(starter: str) -> str:
    text = (ROOT / "docs" / "nodes.md").read_text()
    (block,) = re.findall(r"## From one shell.*?```bash\n(.*?)```", text, re.S)
    found = {
        name.strip(): words for name, words in re.findall(r"^# ([\w ]+).*\n(.*)$", block, re.M)
    }
    assert tuple(found) == STARTERS
    return found[starter]


@pytest.fixture
def network() -> Iterator[Network]:
    with network_of("ab") as network:
        yield network


def environ_of(starter: str, network: Network, directory: Path) -> dict[str, str]:
    """Stand-ins of the programs, and the variables of a job with two slots on each node."""
    addresses = [network.address(host) for host in network.hosts]
    names = " ".join(f"{network.address(host)}) name={host};;" for host in network.hosts)
    for program, environ in (("ssh", 'env -i PATH="$PATH"'), ("qrsh", "env")):
        path = directory / program
        hosts = "|".join(addresses)
        path.write_text(REMOTE.format(hosts=hosts, names=names, mark=network.mark, environ=environ))
        path.chmod(0o755)
    nodes = directory / "nodes"
    if starter == "PBS":
        nodes.write_text("".join(2 * f"{address}\n" for address in addresses))
        return {"PBS_JOBID": "12.server", "PBS_NODEFILE": str(nodes)}
    if starter == "Grid Engine":
        nodes.write_text(
            "".join(f"{address} 2 all.q@{address} UNDEFINED\n" for address in addresses)
        )
        return {"JOB_ID": "12", "NHOSTS": "2", "NSLOTS": "4", "PE_HOSTFILE": str(nodes)}
    return {}


def check_that_all_start(
    command: str, status: int, network: Network, environ: dict[str, str], directory: Path
) -> None:
    """Run the command on the first node; the four ranks of both nodes start, and end as one."""
    environ = clean_environ(**open_mpi(directory), **environ)
    environ["PATH"] = f"{directory}:{environ['PATH']}"
    done = subprocess.run(
        (*network.within("a", "nodea"), "bash", "-c", command), cwd=ROOT, env=environ, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    said = {path.name: path.read_text() for path in directory.glob("rank-*")}
    assert said == {f"rank-{rank}": "4" for rank in range(4)}, done.stdout + done.stderr


@pytest.mark.parametrize("status", [7, 0])
@pytest.mark.parametrize("starter", STARTERS)
def test_one_command_starts_all_launchers(
    network: Network, tmp_path: Path, starter: str, status: int
) -> None:
    script = tmp_path / "script.py"
    script.write_text(WORKER.format(directory=tmp_path, status=status))
    a, b = map(network.address, "ab")
    command = line(starter)
    for ours, here in (
        ("node[0-1]", f"{a},{b}"), ("node0", a), ("node1", b), ("python ", f"{sys.executable} "),
        ("gpu train.py", f"2 {script}"),
    ):  # fmt: skip
        command = command.replace(ours, here)
    environ = environ_of(starter, network, tmp_path)
    check_that_all_start(command, status, network, environ, tmp_path)


@pytest.mark.parametrize(
    ("starter", "kind"), [("PBS", hosts.Pbs), ("Grid Engine", hosts.GridEngine)]
)
def test_the_line_that_a_manager_gives_starts_all_launchers(
    network: Network, tmp_path: Path, starter: str, kind: type[hosts.HostList]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(WORKER.format(directory=tmp_path, status=0))
    environ = environ_of(starter, network, tmp_path)
    manager = kind(environ)
    words = [*LAUNCHER, *manager.launcher_flags(), "--nproc=2", str(script)]
    check_that_all_start(manager.start_line(shlex.join(words), 1), 0, network, environ, tmp_path)
