"""A step of the bundled training loop: forward, backward, gradients over all ranks, update."""

import itertools

import torch

from spawnlaunch.bench.gang import Gang, steps_together_per_second
from spawnlaunch.train.commandline import parse
from spawnlaunch.train.distributed import World
from spawnlaunch.train.learner import Learner
from spawnlaunch.train.tasks.language import Language


def missing(_gang: Gang) -> str | None:
    return None


def measure(gang: Gang) -> dict[str, float]:
    """Steps per second."""
    config, _ = parse([])
    task = Language()
    world = World(gang.rank, gang.size, gang.local_rank, gang.local_size)
    learner = Learner(task, config, world, gang.device, config.batch_size)
    samples = task.dataset("train")
    pairs = [samples[gang.rank * config.batch_size + i] for i in range(config.batch_size)]
    batch = tuple(torch.stack(part).to(gang.device) for part in zip(*pairs, strict=True))
    batches = itertools.repeat(batch)
    return {"": steps_together_per_second(gang, lambda: learner.step(batches, lambda: False))}
