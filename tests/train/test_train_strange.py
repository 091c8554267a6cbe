"""Tasks as strangers write them: what works, and what is refused in one line."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from spawnlaunch.train.data import to_device
from tests.train.ranks import complete, history, metrics, run

TASK = """
import collections, pathlib, threading, torch

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
        return {"mean": sums["means"] / sums["batches"], "none": float("nan")}


class Local(Base):
    def dataset(self, split):
        count = 32 if split == "train" else 8

        class Rows:
            def __len__(self):
                return count

            def __getitem__(self, index):
                return Pair(torch.rand(1) * scale(index), torch.tensor(2.0))

        scale = lambda index: index / count
        return Rows()


class Stuck(Local):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Empty(Base):
    def dataset(self, split):
        return [] if split == "validation" else super().dataset(split)


class Filed(Base):
    def __init__(self, file: pathlib.Path):
        super().__init__()


class Needing(Base):
    def __init__(self, points: int):
        super().__init__()
"""
FLAGS = (
    *("--device", "cpu", "--steps", "6", "--batch-size", "4", "--log-every", "2", "--out", "here"),
)


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "strange.py").write_text(TASK)
    (tmp_path / "run.toml").write_text("lr = 0.01\n")
    return tmp_path


@pytest.mark.full
def test_a_validation_sees_the_buffers_that_a_checkpoint_keeps(cwd: Path) -> None:
    """BatchNorm's, which each rank changes by samples of its own; options without a type too."""
    flags = ("--task", "strange.py:Strange", "--hidden", "8", "--eval-batch-size", "4")
    complete(2, *FLAGS, *flags, "--loader-workers", "1", cwd=cwd)
    json.loads((cwd / "here" / "evaluation.json").read_text(), parse_constant=int)  # no NaN
    weights = torch.load(cwd / "here" / "step-00000006" / "weights.pt", weights_only=True)
    assert weights["1.running_mean"].shape == (8,)
    mean = float(weights["1.running_mean"].sum())
    assert metrics(cwd / "here", "mean")[-1] == pytest.approx(mean, rel=1e-6)


@pytest.mark.full
def test_what_a_task_needs_may_be_typed_beside_a_file(cwd: Path) -> None:
    flags = ("--config", "run.toml", "--task", "strange.py:Needing")
    complete(0, *FLAGS, *flags, "--points", "3", cwd=cwd)
    (ended,) = run(0, *FLAGS, *flags, cwd=cwd)
    assert ended.status == 2
    assert ended.err.endswith("the following arguments are required: --points\n")


@pytest.mark.full
@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("Empty", "the data set 'validation' of the task empty is empty; give it samples"),
        ("Filed", "--task: the parameter file of Filed is of the type Path, which no flag can be"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_once(cwd: Path, task: str, said: str) -> None:
    first, second = run(2, *FLAGS, "--task", f"strange.py:{task}", cwd=cwd)
    assert (first.status, second.status) == (2, 2)
    assert first.err.startswith(f"train: error: {said}")
    assert second.err == ""


@pytest.mark.full
@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_class_inside_a_method_is_read_by_loader_processes(cwd: Path, world: int) -> None:
    flags = ("--task", "strange.py:Local", "--log-every", "1")
    for loaders in ("0", "2"):
        complete(world, *FLAGS, *flags, "--loader-workers", loaders, "--out", loaders, cwd=cwd)
    assert history(cwd / "2") == history(cwd / "0")


@pytest.mark.full
def test_what_no_process_can_be_sent_is_refused(cwd: Path) -> None:
    (ended,) = run(1, *FLAGS, "--task", "strange.py:Stuck", "--loader-workers", "1", cwd=cwd)
    assert ended.status == 2
    assert ended.err.startswith("train: error: --task strange.py:Stuck:")
    assert ended.err.endswith("; type --loader-workers 0\n")


class Whole:
    """What is moved as a whole, as the BatchEncoding of transformers is."""

    def __init__(self, place: str = "cpu"):
        self.place = place

    def to(self, device: torch.device) -> "Whole":
        return Whole(device.type)


@dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    rest: "list[Plain]"


class Plain:
    def __init__(self) -> None:
        self.pair = Pair(torch.ones(1), "text")


class Pair(NamedTuple):
    x: torch.Tensor
    to: str  # no method, as that of a tensor is


def test_a_batch_that_is_a_dataclass_or_a_class_is_moved_and_left_as_it_was() -> None:
    batch = Frozen(torch.ones(2), [Plain()])
    moved = to_device(batch, torch.device("meta"))
    assert isinstance(moved, Frozen)
    assert moved.x.device.type == moved.rest[0].pair.x.device.type == "meta"
    assert moved.rest[0].pair.to == "text"
    assert batch.x.device.type == batch.rest[0].pair.x.device.type == "cpu"


@dataclass(frozen=True, slots=True)
class Slotted:
    x: torch.Tensor
    name: str


class Named(dict[str, torch.Tensor]):
    """A batch whose items are attributes too, with one that is no item."""

    limit = 0

    @property
    def x(self) -> torch.Tensor:
        return self["x"]


def test_what_a_batch_is_made_of_stays_of_its_class() -> None:
    named = Named(x=torch.ones(2))
    named.limit = 3
    batches: list[Any] = [Slotted(torch.ones(2), "text"), named]
    for batch in batches:
        moved = to_device(batch, torch.device("meta"))
        assert type(moved) is type(batch)
        assert (moved.x.device.type, batch.x.device.type) == ("meta", "cpu")
    assert to_device(named, torch.device("meta")).limit == 3
    assert to_device(Slotted(torch.ones(2), "text"), torch.device("cpu")).name == "text"


class Copied:
    def to(self, device: torch.device, *, non_blocking: bool = False) -> tuple[str, bool]:
        return device.type, non_blocking


class Forwarded:
    def to(self, *words: Any, **named: Any) -> tuple[Any, Any]:
        return words, named


def test_what_moves_itself_is_copied_beside_the_computation() -> None:
    there = torch.device("meta")
    assert to_device(Copied(), there) == ("meta", True)
    assert to_device([Forwarded()], there) == [((there,), {"non_blocking": True})]
    packed = nn.utils.rnn.pack_sequence([torch.ones(2)])
    assert to_device(packed, there).data.device == there


def test_a_batch_of_any_kind_is_brought_to_the_device() -> None:
    there = torch.device("meta")
    moved = to_device({"a": (torch.ones(1), [Whole()]), "b": "text"}, there)
    assert moved["a"][0].device == there
    assert moved["a"][1][0].place == "meta"
    assert moved["b"] == "text"
