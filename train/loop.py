"""The training loop: from a seed and a task to a trained model."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .config import Config
from .data import batches
from .distributed import World, sum_over_ranks
from .evaluate import evaluate
from .order import RankBatches
from .report import Log, Metrics, Screen
from .task import Task

FINAL_LR_SHARE = 0.05
WEIGHT_DECAY = 0.1
BETAS = (0.9, 0.95)
LARGEST_GRADIENT_NORM = 1.0


def train(
    task: Task,
    config: Config,
    world: World,
    device: torch.device,
    screen: Screen,
    metrics: Metrics,
) -> tuple[nn.Module, float]:
    """The trained model, unwrapped, and its validation loss in the task's unit.

    Every rank calls it with the same task and configuration, and gets the same result.
    """
    torch.manual_seed(config.seed)
    bare = task.model().to(device)
    model = data_parallel(bare, world, device)
    optimizer = make_optimizer(bare, config.lr)
    samples = task.dataset("train")
    order = RankBatches(
        len(samples), config.seed, config.batch_size, config.steps, world.rank, world.size
    )
    global_batch = config.batch_size * world.size
    log = Log(screen, metrics, task.unit, config.steps, config.log_every, global_batch)
    screen.line(f"{sum(p.numel() for p in bare.parameters()):,} parameters")

    loss = math.nan
    for step, batch in enumerate(batches(samples, order, device), start=1):
        lr = config.lr * lr_share(step, config.steps, config.warmup)
        for group in optimizer.param_groups:
            group["lr"] = lr

        loss_sum, count = task.loss(model, batch)
        totals = sum_over_ranks(torch.stack((loss_sum.detach().double(), count.double())))
        # DDP averages gradients over the ranks. What is wanted is the gradient of the sum over
        # the global batch divided by its count, whichever rank has how much of it.
        torch.autograd.backward(loss_sum * (world.size / totals[1]).to(loss_sum.dtype))
        nn.utils.clip_grad_norm_(bare.parameters(), LARGEST_GRADIENT_NORM)
        optimizer.step()
        optimizer.zero_grad()
        log.step(step, totals, lr)

        last = step == config.steps
        if last or (config.eval_every and step % config.eval_every == 0):
            loss = evaluate(task, bare, config.batch_size, world, device)
            log.validation(step, loss)
    return bare, loss


def data_parallel(model: nn.Module, world: World, device: torch.device) -> nn.Module:
    """The model with gradients averaged over the ranks in every backward pass."""
    if world.size == 1:
        return model
    ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)


def make_optimizer(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """AdamW; only matrices decay, for a norm's scale has no reason to be near zero."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=BETAS, fused=True)


def lr_share(step: int, steps: int, warmup: int) -> float:
    """The share of the highest learning rate at a step counted from 1: a rise, then a cosine."""
    rise = min(1.0, step / (warmup + 1))
    fall = 0.5 * (1.0 + math.cos(math.pi * step / steps))
    return rise * (FINAL_LR_SHARE + (1.0 - FINAL_LR_SHARE) * fall)
