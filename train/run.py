"""A run: the workers meet, train together, part, and rank 0 keeps and shows the result."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from . import checkpoint, distributed
from .config import Config
from .distributed import World
from .errors import RefusedError
from .loop import train
from .out import CHECKPOINT, METRICS, claim
from .report import Metrics, Screen
from .task import Sampling, Task


def run(config: Config, task: Task) -> None:
    """Do what ``config`` asks; raises RefusedError when it cannot be done."""
    world = distributed.read_world(os.environ)
    device = distributed.pick_device(config.device, world, torch.cuda.device_count())
    distributed.join(world, device)
    try:
        out = agree_on_directory(config, task, world)
    except RefusedError:
        distributed.leave()
        raise
    screen = Screen(sys.stdout if world.rank == 0 else None)
    metrics = Metrics(out / METRICS if world.rank == 0 else None)
    ranks = "1 rank" if world.size == 1 else f"{world.size} ranks"
    screen.line(f"{task.name}: {task.describe()}")
    screen.line(f"{ranks} on {device.type}, {config.batch_size} samples per rank and step")
    screen.line(f"writing to {out}")

    model, loss = train(task, config, world, device, screen, metrics)
    # The data-parallel wrapper holds the process group and sits in a reference cycle. It has to
    # go first: gloo's threads abort a process that exits while they are still wanted.
    gc.collect()
    distributed.leave()
    if world.rank == 0:
        finish(model, loss, config, task, world, out, screen)


def agree_on_directory(config: Config, task: Task, world: World) -> Path:
    """The output directory that rank 0 made, on every rank; they are refused together."""
    path, refusal = Path(), ""
    if world.rank == 0:
        try:
            path = claim(config.out, task.name, config.overwrite)
        except RefusedError as error:
            refusal = str(error)
    path, refusal = distributed.from_rank_0((path, refusal))
    if refusal:
        raise RefusedError(refusal, shared=True)
    return path


def finish(
    model: nn.Module,
    loss: float,
    config: Config,
    task: Task,
    world: World,
    out: Path,
    screen: Screen,
) -> None:
    """Save the model, then show what it does and how good it is."""
    state = {
        "task": task.name,
        "data": task.describe(),
        "config": asdict(config),
        "world_size": world.size,
        "step": config.steps,
        "samples": config.steps * config.batch_size * world.size,
        "validation_loss": loss,
        "model": {name: tensor.cpu() for name, tensor in model.state_dict().items()},
    }
    checkpoint.save(out / CHECKPOINT, state)
    screen.line(f"saved {out / CHECKPOINT}")
    if isinstance(task, Sampling):
        model.eval()
        screen.line(f"a sample:\n{task.sample(model, config.seed)}\n")
    screen.line(f"validation loss {loss:.3f} {task.unit}")
