"""How long a run is, and its learning rate on the way: pure functions of the step."""

from __future__ import annotations

import math

from .config import Config
from .errors import RefusedError

FINAL_LR_SHARE = 0.05


def lr_share(step: int, steps: int, warmup: int) -> float:
    """The share of the highest learning rate at a step counted from 1: a rise, then a cosine."""
    rise = min(1.0, step / (warmup + 1))
    fall = 0.5 * (1.0 + math.cos(math.pi * step / steps))
    return rise * (FINAL_LR_SHARE + (1.0 - FINAL_LR_SHARE) * fall)


def global_batch(config: Config, world_size: int) -> int:
    """The samples of one step of all ranks together.

    Raises RefusedError when ``--global-batch`` leaves a forward pass without a sample.
    """
    passes = world_size * config.accumulate
    if config.global_batch is None:
        return config.batch_size * passes
    if config.global_batch < passes:
        raise RefusedError(
            f"--global-batch is {config.global_batch}, and {world_size} ranks make {passes} "
            f"forward passes per step; type {passes} or more",
            shared=True,
        )
    return config.global_batch


def steps(config: Config, length: int, batch: int) -> int:
    """The steps of a run on ``length`` samples.

    With ``--epochs`` the last step is completed by samples of the next epoch, as every other step
    is that an epoch ends in.
    """
    if config.epochs is None:
        return config.steps
    return math.ceil(config.epochs * length / batch)
