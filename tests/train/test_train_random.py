"""What samples draw depends on the seed and their place in the run, and on nothing else."""

import itertools
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tests.train.ranks import complete

SAMPLES, HELD_OUT, STEPS, EPOCHS = 24, 7, 6, 3
DRAWS = """
import json, os, random
import numpy as np
import torch

RANK = os.environ["RANK"]


def numbers():
    # One normal number: NumPy and Python draw two at a time, and keep the second.
    return [random.gauss(0, 1), np.random.randn(), np.random.rand(), torch.randn(()).item()]


class Drawing:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.tensor([index, *numbers()], dtype=torch.float64)


class Draws:
    def model(self):
        return torch.nn.Linear(5, 1).double()

    def dataset(self, split):
        return Drawing(24 if split == "train" else 7)

    def loss(self, model, batch):
        noise = numbers()
        with open(f"rank{RANK}.jsonl", "a") as file:
            file.write(json.dumps([model.training, batch.tolist(), noise]) + "\\n")
        return (model(batch) * noise[-1]).square().sum(), len(batch)
"""
FLAGS = (
    *("--device", "cpu", "--task", "draws.py:Draws", "--log-every", "1", "--save-every", "0"),
    *("--steps", str(STEPS), "--global-batch", "12", "--eval-every", "3", "--eval-batch-size", "2"),
    *("--seed", "3", "--out", "here"),
)
OTHERS = [
    *((1, 2), (2, 0)),
    *(pytest.param(*other, marks=pytest.mark.full) for other in ((2, 2), (3, 0), (3, 2))),
]


class Drawn(NamedTuple):
    """What all samples drew, in any order, and what the model of each rank did."""

    training: list[tuple[float, ...]]
    validation: list[tuple[float, ...]]
    model: list[list[float]]


def drawn(cwd: Path, world: int, loaders: int) -> Drawn:
    cwd.mkdir()
    (cwd / "draws.py").write_text(DRAWS)
    complete(world, *FLAGS, "--loader-workers", str(loaders), cwd=cwd)
    rows: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    model = []
    for rank in range(world):
        lines: list[Any] = [*map(json.loads, (cwd / f"rank{rank}.jsonl").read_text().splitlines())]
        # Before the first step the first batch is looked at, and buckets are arranged.
        lines = list(itertools.dropwhile(lambda line: not line[0], lines))[world > 1 :]
        for training, samples, _ in lines:
            rows[training] += map(tuple, samples)
        model.append([noise for training, _, noise in lines if training])
    return Drawn(sorted(rows[True]), sorted(rows[False]), model)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """One rank that reads its samples itself."""
    return drawn(tmp_path_factory.mktemp("alone") / "run", 1, 0)


@pytest.mark.full
def test_every_sample_of_every_epoch_draws_its_own_numbers(alone: Drawn) -> None:
    assert len(alone.training) == EPOCHS * SAMPLES
    for generator in range(1, 5):
        assert len({row[generator] for row in alone.training}) == EPOCHS * SAMPLES


@pytest.mark.full
def test_all_validations_draw_the_same_numbers(alone: Drawn) -> None:
    once = sorted(set(alone.validation))
    assert len(once) == HELD_OUT
    assert alone.validation == sorted(STEPS // 3 * once)
    assert not {row[1:] for row in once} & {row[1:] for row in alone.training}


@pytest.mark.full
@pytest.mark.parametrize(("world", "loaders"), OTHERS)
def test_who_reads_a_sample_changes_nothing(
    tmp_path: Path, alone: Drawn, world: int, loaders: int
) -> None:
    found = drawn(tmp_path / "run", world, loaders)
    assert found.training == alone.training
    assert found.validation == alone.validation
    assert found.model == [model_stream(rank) for rank in range(world)]


@pytest.mark.full
def test_the_model_draws_as_if_samples_drew_nothing(alone: Drawn) -> None:
    assert alone.model == [model_stream(0)]


def model_stream(rank: int) -> list[list[float]]:
    """What a model draws, by a plain loop: NumPy's second normal number ends with each batch."""
    first, second = map(int, np.random.SeedSequence((3, rank)).generate_state(2))
    python, state = random.Random(first), np.random.RandomState(first)
    ours = torch.Generator().manual_seed(second)
    drawn = []
    for _ in range(STEPS):
        state.set_state((*state.get_state()[:3], 0, 0.0))
        numbers = [python.gauss(0, 1), state.randn(), state.rand()]
        drawn.append([*numbers, torch.randn((), generator=ours).item()])
    return drawn
