"""The training of ``plain_ddp.py`` as a task of the loop: the model, the samples, and the loss.

    python -m spawnlaunch --nproc 2 -- --task train/examples/as_task.py:Signs --epochs 6

The rest is the loop's: order, schedule, clipping, checkpoints, resume, preemption, metrics. The
losses are sums and counts, not means: those of uneven batches and ranks can be added.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from spawnlaunch.train.task import Task


class Signs(Task):
    """Learn whether the coordinates of a point have the same sign."""

    defaults = {"batch_size": 16, "lr": 1e-2, "weight_decay": 0.01}  # noqa: RUF012

    def __init__(self, hidden: int = 32) -> None:  # the flag --hidden
        self.hidden = hidden

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, self.hidden), nn.ReLU(), nn.Linear(self.hidden, 2))

    def dataset(self, split: str) -> TensorDataset:
        generator = torch.Generator().manual_seed(1 if split == "train" else 2)
        points = torch.randn(960, 2, generator=generator)
        return TensorDataset(points, (points.prod(dim=1) > 0).long())

    def loss(self, model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, int]:
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)

    def measure(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor | float]:
        x, y = batch
        logits = model(x)
        loss = F.cross_entropy(logits, y, reduction="sum")
        return {"loss": loss, "count": len(y), "right": (logits.argmax(dim=1) == y).sum()}

    def report(self, sums: Mapping[str, Tensor]) -> dict[str, float | Tensor]:
        return {"accuracy": sums["right"] / sums["count"]}
