"""The loss on held-out samples, each of them counted once whatever the number of ranks."""

from __future__ import annotations

import torch
from torch import nn

from .data import batches
from .distributed import World, sum_over_ranks
from .task import Task


@torch.no_grad()
def evaluate(
    task: Task, model: nn.Module, batch_size: int, world: World, device: torch.device
) -> float:
    """The mean validation loss in the task's unit, the same number on every rank.

    Rank r takes the samples r, r + size, ... and nothing is padded. So ranks may have different
    numbers of batches, which is why ``model`` must be the bare one: a data-parallel wrapper may
    communicate in every forward, and the ranks would wait for each other for ever.
    """
    samples = task.dataset("validation")
    mine = range(world.rank, len(samples), world.size)
    chunks = [list(mine[i : i + batch_size]) for i in range(0, len(mine), batch_size)]
    totals = torch.zeros(2, dtype=torch.float64, device=device)
    model.eval()
    for batch in batches(samples, chunks, device):
        totals += torch.stack(task.loss(model, batch))
    model.train()
    loss_sum, count = sum_over_ranks(totals).tolist()
    return float(loss_sum / count)
