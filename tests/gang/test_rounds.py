"""Real launches on four nodes in which something breaks: a handful of the rounds of `rounds`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gang.namespaces import Network, network_of
from tests.gang.rounds import HOSTS, play

# A worker, the hub's guard, a node; with a spare a worker and a cable; two faults at once.
SEEDS = (1, 2, 3, 6, 41, 46, 48)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with network_of(HOSTS) as network:
        yield network


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
def test_a_round(network: Network, tmp_path: Path, seed: int) -> None:
    play(network, tmp_path, seed)
