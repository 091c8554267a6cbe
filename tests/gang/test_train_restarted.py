"""The training loop on four nodes: started again after a kill it computes the same, bit for bit."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gang.cluster import Cluster
from tests.gang.namespaces import Network, may_make_namespaces
from tests.slurm.scripts import TINY
from tests.support.patience import PATIENCE_S
from tests.support.processes import until

pytestmark = [
    pytest.mark.stress,  # eight ranks import torch, and four of them once more
    pytest.mark.skipif(not may_make_namespaces(), reason="needs root and ip netns"),
]

HOSTS = "abcd"
STEPS = ("--steps", "60", "--log-every", "1", "--eval-every", "0", "--save-every", "10")
COMPUTED = ("step", "samples", "loss", "lr")


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network(HOSTS)
    yield network
    network.remove()


def history(out: Path) -> list[dict[str, Any]]:
    path = out / "metrics.jsonl"
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return [{name: line[name] for name in COMPUTED if name in line} for line in lines]


def trains(network: Network, directory: Path) -> Cluster:
    directory.mkdir()
    flags = ("--nnodes=4", "--nproc=1", "--max-restarts=3", "--failure-grace=1")
    cluster = Cluster(network, directory, *flags)
    for host in HOSTS:
        words = ("--", *TINY, *STEPS, "--out", str(directory / "out"), "--resume", "auto")
        cluster.start(host, *words)
    return cluster


def test_a_loop_that_is_killed_and_started_again(network: Network, tmp_path: Path) -> None:
    whole = trains(network, tmp_path / "whole")
    assert set(whole.statuses().values()) == {0}, whole.texts()
    killed = trains(network, tmp_path / "killed")
    out = tmp_path / "killed" / "out"
    until(lambda: len(history(out)) >= 15, "fifteen steps", PATIENCE_S)
    for worker in killed.workers("c"):
        os.kill(worker, signal.SIGKILL)
    assert set(killed.statuses().values()) == {0}, killed.texts()
    assert "restart 1 of 3" in killed.text("a")
    assert history(out) == history(tmp_path / "whole" / "out")
