"""Launchers in network namespaces, whose cables can be cut: needs root and ip(8)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.multinode.cluster import Cluster
from tests.multinode.namespaces import Network, network_of

pytestmark = pytest.mark.full

LOST_AFTER_S = 3
FLAGS = (f"--lost-after={LOST_AFTER_S}", "--failure-grace=1", "--grace=2", "--nproc=1")
BEGIN = "begin $TORCHELASTIC_RESTART_COUNT of $GROUP_WORLD_SIZE at $MASTER_ADDR"
RUNS = f"echo {BEGIN}; exec sleep 600"


@pytest.fixture
def network() -> Iterator[Network]:
    with network_of("abc") as network:
        yield network


def started(cluster: Cluster, worker: str, hosts: str = "abc", working: str = "abc") -> None:
    """Launchers of the hosts, some of which have begun the first epoch."""
    for host in hosts:
        cluster.start_on(host, "--no-python", "sh", "-c", worker)
    for host in working:
        cluster.wait_for(host, "begin 0")


def test_one_that_was_cut_off_joins_again(network: Network, tmp_path: Path) -> None:
    again = ("--max-restarts=1", "--return-timeout=60", "--rdzv-conf=last_call_timeout=1")
    cluster = Cluster(network, tmp_path, "--nnodes=2:3", *again, *FLAGS)
    started(cluster, f"[ $TORCHELASTIC_RESTART_COUNT = 2 ] || {{ {RUNS}; }}; echo {BEGIN}")
    network.cut("c")
    for host in "ab":
        cluster.wait_for(host, "begin 1 of 2")
    network.mend("c")
    assert cluster.statuses() == {"a": 0, "b": 0, "c": 0}
    for host in "abc":
        cluster.wait_for(host, "begin 2 of 3")


def test_a_short_cut_does_nothing(network: Network, tmp_path: Path) -> None:
    cluster = Cluster(network, tmp_path, "--nnodes=3", *FLAGS)
    started(cluster, f"echo {BEGIN}; until [ -e {tmp_path}/mended ]; do sleep 0.1; done; sleep 1")
    network.cut("b")
    time.sleep(LOST_AFTER_S / 3)
    network.mend("b")
    (tmp_path / "mended").touch()
    assert cluster.statuses() == dict.fromkeys("abc", 0)
