"""One command starts the launchers of all nodes: clush and pdsh, with a stand-in for ssh."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gang.namespaces import Network, may_make_namespaces
from tests.support.launching import ROOT, clean_environ
from tests.support.patience import PATIENCE_S
from tests.support.required import require_programs

require_programs("clush", "pdsh", package="clustershell pdsh")
pytestmark = pytest.mark.skipif(not may_make_namespaces(), reason="needs root and ip netns")

# The last two words are the host and the command; those before are flags, some with a value.
SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
case "$1" in -*) exit 9;; esac
exec ip netns exec {mark}$1 unshare --uts sh -c 'hostname "$0" && eval "$1"' "$1" "$2"
"""
STARTERS = {
    "clush": ("clush", "--nostdin", "-b", "-w", "a,b"),
    "pdsh": ("pdsh", "-R", "ssh", "-w", "a,b"),
}


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network("ab")
    yield network
    network.remove()


@pytest.mark.parametrize("starter", STARTERS.values(), ids=STARTERS)
def test_one_command_starts_all_launchers(
    network: Network, tmp_path: Path, starter: tuple[str, ...]
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(mark=network.mark))
    ssh.chmod(0o755)
    worker = f"echo $WORLD_SIZE > {tmp_path}/rank-$RANK"
    command = (
        f"cd {ROOT} && {sys.executable} -m spawnlaunch --nnodes 2 --nproc 2 --rdzv-backend c10d "
        f"--rdzv-endpoint {network.address('a')}:29400 --no-python sh -c '{worker}'"
    )
    environ = clean_environ(PDSH_SSH_ARGS_APPEND="")
    environ["PATH"] = f"{tmp_path}:{environ['PATH']}"
    done = subprocess.run(
        (*starter, command), env=environ, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = {path.name: path.read_text() for path in tmp_path.glob("rank-*")}
    assert said == {f"rank-{rank}": "4\n" for rank in range(4)}, done.stdout + done.stderr
