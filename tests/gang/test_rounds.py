"""Real launches on four nodes in which something breaks: a handful of the rounds of `rounds`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gang.namespaces import Network, may_make_namespaces
from tests.gang.rounds import HOSTS, play

pytestmark = pytest.mark.skipif(not may_make_namespaces(), reason="needs root and ip netns")

# A worker, the hub's guard, a node; with a spare a worker and a cable; two faults at once.
SEEDS = (1, 2, 3, 6, 41, 46, 48)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    network = Network(HOSTS)
    yield network
    network.remove()


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
def test_a_round(network: Network, tmp_path: Path, seed: int) -> None:
    play(network, tmp_path, seed)
