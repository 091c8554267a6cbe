"""Tasks as strangers write them: what works, and what is refused in one line."""

import pickle
from pathlib import Path

import pytest
import torch
from ranks import complete, metrics, run

from train.data import to_device
from train.find import Shipped

TASK = """
import collections, pathlib, torch

Pair = collections.namedtuple("Pair", "x y")


class Base:
    def __init__(self, hidden=4, depth: int | None = None, **more):
        self.hidden, self.more = hidden, more

    def model(self):
        norm = torch.nn.BatchNorm1d(self.hidden)
        return torch.nn.Sequential(torch.nn.Linear(1, self.hidden), norm)

    def dataset(self, split):
        count = 32 if split == "train" else 8
        return [Pair(torch.tensor([i / count]), torch.tensor(2.0)) for i in range(count)]

    def loss(self, model, batch):
        return (model(batch.x).sum(1) - batch.y).square().sum(), len(batch.x)


class Strange(Base):
    def measure(self, model, batch):
        loss, count = self.loss(model, batch)
        return {"loss": loss, "count": count, "means": model[1].running_mean.sum(), "batches": 1}

    def report(self, sums):
        return {"mean": sums["means"] / sums["batches"]}


class Empty(Base):
    def dataset(self, split):
        return [] if split == "validation" else super().dataset(split)


class Endless(Base):
    def dataset(self, split):
        return iter(super().dataset(split))


class Filed(Base):
    def __init__(self, file: pathlib.Path):
        super().__init__()


class Needing(Base):
    def __init__(self, points: int):
        super().__init__()
"""
FLAGS = (
    "--device",
    "cpu",
    "--steps",
    "6",
    "--batch-size",
    "4",
    "--log-every",
    "2",
    "--out",
    "here",
)


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "strange.py").write_text(TASK)
    (tmp_path / "run.toml").write_text("lr = 0.01\n")
    return tmp_path


def test_a_validation_sees_the_buffers_that_a_checkpoint_keeps(cwd: Path) -> None:
    """BatchNorm's, which each rank changes by samples of its own; options without a type too."""
    flags = ("--task", "strange.py:Strange", "--hidden", "8", "--eval-batch-size", "4")
    complete(2, *FLAGS, *flags, "--loader-workers", "1", cwd=cwd)
    weights = torch.load(cwd / "here" / "step-00000006" / "weights.pt", weights_only=True)
    assert weights["1.running_mean"].shape == (8,)
    mean = float(weights["1.running_mean"].sum())
    assert metrics(cwd / "here", "mean")[-1] == pytest.approx(mean, rel=1e-6)


def test_what_a_task_needs_may_be_typed_beside_a_file(cwd: Path) -> None:
    flags = ("--config", "run.toml", "--task", "strange.py:Needing")
    complete(0, *FLAGS, *flags, "--points", "3", cwd=cwd)
    (ended,) = run(0, *FLAGS, *flags, cwd=cwd)
    assert ended.status == 2
    assert ended.err.endswith("the following arguments are required: --points\n")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("Empty", "the data set 'validation' of the task empty is empty; give it samples"),
        ("Endless", "the data set 'train' of the task endless has no length; give it samples"),
        ("Filed", "--task: the parameter file of Filed is of the type Path, which no flag can be"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_once(cwd: Path, task: str, said: str) -> None:
    first, second = run(2, *FLAGS, "--task", f"strange.py:{task}", cwd=cwd)
    assert (first.status, second.status) == (2, 2)
    assert first.err.startswith(f"train: error: {said}")
    assert second.err == ""


def test_samples_that_are_views_of_one_tensor_are_sent_with_its_memory_once() -> None:
    rows = list(zip(torch.zeros(2000, 100), torch.zeros(2000), strict=True))
    data = pickle.dumps(Shipped("language", rows))
    assert len(data) < 3 * 2000 * 101 * 4
    assert torch.equal(pickle.loads(data).content[7][0], rows[7][0])


class Whole:
    """What is moved as a whole, as the BatchEncoding of transformers is."""

    def __init__(self, place: str = "cpu"):
        self.place = place

    def to(self, device: torch.device) -> "Whole":
        return Whole(device.type)


def test_a_batch_of_any_kind_is_brought_to_the_device() -> None:
    there = torch.device("meta")
    moved = to_device({"a": (torch.ones(1), [Whole()]), "b": "text"}, there)
    assert moved["a"][0].device == there
    assert moved["a"][1][0].place == "meta"
    assert moved["b"] == "text"
