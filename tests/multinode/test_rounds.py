"""Real launches on four nodes in which something breaks: a handful of rounds, and 300 at night."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.multinode.namespaces import Network, network_of
from tests.multinode.rounds import HOSTS, play

# A worker, the hub's guard, a node; with a spare a worker and a cable; two faults at once.
SEEDS = (1, 2, 3, 6, 41, 46, 48)
ROUNDS = [
    pytest.param(seed, marks=pytest.mark.full if seed in SEEDS else pytest.mark.nightly)
    for seed in range(1, 301)
]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with network_of(HOSTS) as network:
        yield network


@pytest.mark.parametrize("seed", ROUNDS)
def test_a_round(network: Network, tmp_path: Path, seed: int) -> None:
    play(network, tmp_path, seed)
