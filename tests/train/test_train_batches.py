"""Batches of any class train the same as a plain loop on the tensors in them."""

from pathlib import Path

import pytest
import torch
from torch import nn

from spawnlaunch.train.order import Order, Shuffled
from tests.train.ranks import complete

STEPS, BATCH = 4, 6
TASK = """
import dataclasses, typing
import torch


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    x: torch.Tensor
    y: torch.Tensor
    names: list


class Pair(typing.NamedTuple):
    x: torch.Tensor
    y: torch.Tensor
    names: list


class Own:
    def __init__(self, x, y, names):
        self.x, self.y, self.names = x, y, names


class Batches:
    def __init__(self, kind: str):
        self.made = {"dataclass": Record, "named tuple": Pair, "class": Own}[kind]

    def model(self):
        return torch.nn.Linear(3, 1)

    def dataset(self, split):
        class Rows:  # no other process knows this class by name
            x = torch.arange(90.0).view(30, 3).sin()

            def __len__(self):
                return len(self.x)

            def __getitem__(self, index):
                return self.x[index], self.x[index].sum(), f"row {index}"

        return Rows()

    def collate(self, samples):
        x, y, names = zip(*samples)
        return self.made(torch.stack(x), torch.stack(y), list(names))

    def loss(self, model, batch):
        assert type(batch) is self.made
        assert len(batch.names) == len(batch.x)
        return (model(batch.x)[:, 0] - batch.y).square().sum(), len(batch.y)
"""
FLAGS = (
    *("--device", "cpu", "--task", "batches.py:Batches", "--global-batch", str(BATCH)),
    *("--lr", "0.01", "--schedule", "constant", "--warmup", "0", "--weight-decay", "0"),
    *("--clip", "0", "--steps", str(STEPS), "--eval-every", "2", "--out", "here"),
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "world", "loaders"),
    [
        ("dataclass", 2, 2),
        ("named tuple", 1, 2),
        ("named tuple", 3, 0),
        ("class", 1, 0),
        ("class", 2, 0),
        ("class", 3, 2),
    ],
)
def test_a_batch_of_any_class_trains_as_a_plain_loop_does(
    tmp_path: Path, kind: str, world: int, loaders: int
) -> None:
    (tmp_path / "batches.py").write_text(TASK)
    complete(world, *FLAGS, "--kind", kind, "--loader-workers", str(loaders), cwd=tmp_path)
    saved = torch.load(tmp_path / "here" / f"step-{STEPS:08}" / "weights.pt", weights_only=True)
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0)
    samples = torch.arange(90.0).view(30, 3).sin()
    for step in range(STEPS):
        x = samples[Order(Shuffled(30, 0), BATCH).batch(step * BATCH, 0).indices]
        torch.autograd.backward((model(x)[:, 0] - x.sum(dim=1)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(saved[name], weight, rtol=1e-4, atol=1e-6)
