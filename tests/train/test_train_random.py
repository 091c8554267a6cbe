"""What samples draw depends on the seed and their place in the run, and on nothing else."""

import itertools
import json
import random
from typing import Any

import numpy as np
import pytest

from tests.support.late import Late
from tests.train.ranks import complete, text_of

torch = Late("torch")
pytestmark = pytest.mark.full
SAMPLES, HELD_OUT, STEPS, EPOCHS = 24, 7, 6, 3
DRAWS = text_of("draws")
FLAGS = (
    *("--device", "cpu", "--task", "draws.py:Draws", "--log-every", "1", "--save-every", "0"),
    *("--steps", str(STEPS), "--global-batch", "12", "--eval-every", "3", "--eval-batch-size", "2"),
    *("--seed", "3", "--out", "here"),
)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What each of two ranks noted, for which other processes read the samples.

    A line says whether it is of training, what the samples drew, and then what the model did.
    """
    cwd = tmp_path_factory.mktemp("random")
    (cwd / "draws.py").write_text(DRAWS)
    complete(2, *FLAGS, "--loader-workers", "2", cwd=cwd)
    noted = [
        map(json.loads, (cwd / f"rank{rank}.jsonl").read_text().splitlines()) for rank in (0, 1)
    ]
    # Before the first step the first batch is looked at.
    return [list(itertools.dropwhile(lambda line: not line[0], each)) for each in noted]


def drawn(lines: list[list[Any]], training: bool) -> list[tuple[float, ...]]:
    """What all samples drew, in any order."""
    return sorted(
        tuple(row)
        for of_rank in lines
        for line in of_rank
        if line[0] == training
        for row in line[1]
    )


def test_every_sample_of_every_epoch_draws_its_own_numbers(lines: list[list[Any]]) -> None:
    rows = drawn(lines, training=True)
    assert len(rows) == EPOCHS * SAMPLES
    for generator in range(1, 5):
        assert len({row[generator] for row in rows}) == EPOCHS * SAMPLES


def test_all_validations_draw_the_same_numbers(lines: list[list[Any]]) -> None:
    rows = drawn(lines, training=False)
    once = sorted(set(rows))
    assert len(once) == HELD_OUT
    assert rows == sorted(STEPS // 3 * once)
    assert not {row[1:] for row in once} & {row[1:] for row in drawn(lines, training=True)}


def test_the_model_draws_as_if_samples_and_validations_drew_nothing(lines: list[list[Any]]) -> None:
    found = [[noise for training, _, noise in of_rank if training] for of_rank in lines]
    assert found == [model_stream(rank) for rank in (0, 1)]


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
