"""Real launches on four nodes in which something breaks: a handful of the rounds of `rounds`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gang.namespaces import Network, may_make_namespaces
from tests.gang.rounds import HOSTS, TrainingRound, play

pytestmark = pytest.mark.skipif(not may_make_namespaces(), reason="needs root and ip netns")

# A worker, the hub's guard, a node; with a spare a worker and a cable; two faults at once.
SEEDS = (1, 3, 6, 41, 46, 48)
TRAINING = (9, 15, 24)  # a worker, with a spare and without; a launcher


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    network = Network(HOSTS)
    yield network
    network.remove()


@pytest.mark.full
def test_a_round(network: Network, tmp_path: Path) -> None:
    play(network, tmp_path, 2)


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
def test_more_rounds(network: Network, tmp_path: Path, seed: int) -> None:
    play(network, tmp_path, seed)


@pytest.mark.nightly  # eight ranks import torch, and most of them once more
@pytest.mark.parametrize("seed", TRAINING)
def test_a_training_loop_computes_the_same(network: Network, tmp_path: Path, seed: int) -> None:
    play(network, tmp_path, seed, TrainingRound)
