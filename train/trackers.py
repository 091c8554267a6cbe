"""Where numbers go besides the run's own file: TensorBoard, and Weights & Biases."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from .config import Config
from .distributed import World
from .errors import RefusedError
from .exit import deaf_children


class Tracker(Protocol):
    """What takes the numbers of a step."""

    def log(self, step: int, shared: Mapping[str, Any], own: Mapping[str, float]) -> None:
        """Numbers that all ranks share, and those of this rank."""

    def close(self) -> None:
        """Write what is left."""


def trackers(config: Config, out: Path, world: World) -> list[Tracker]:
    """Those that were asked for; none by default.

    Raises RefusedError on all ranks together where what they need is not installed.
    """
    found: list[Tracker] = []
    if config.tensorboard:
        tensorboard = _need("torch.utils.tensorboard")
        if world.rank == 0:
            found.append(TensorBoard(tensorboard.SummaryWriter(str(out / "tensorboard"))))
    if config.wandb is not None:
        found.append(WeightsAndBiases(_run(config.wandb, config, out, world)))
    return found


class TensorBoard:
    """Shared numbers as scalars, written by rank 0."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def log(self, step: int, shared: Mapping[str, Any], _own: Mapping[str, float]) -> None:
        """Write the numbers of a step."""
        for name, value in _numbers(shared).items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self.writer.close()


class WeightsAndBiases:
    """A run of this rank, in a group with those of the others."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def log(self, step: int, shared: Mapping[str, Any], own: Mapping[str, float]) -> None:
        """Send the numbers of a step."""
        self.run.log({**_numbers(shared), **own}, step=step)

    def close(self) -> None:
        """Send what is left."""
        self.run.finish()


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, float)}


def _run(project: str, config: Config, out: Path, world: World) -> Any:
    """One run per rank in one group, so that a slow rank can be seen beside the others.

    The id is the same after a resume, so that its numbers go on in the same run.
    """
    directory = out / "wandb" / f"rank-{world.rank}"
    directory.mkdir(parents=True, exist_ok=True)
    wandb = _need("wandb")
    # Its own process has to outlive the signal that asks the training to save.
    with deaf_children():
        return wandb.init(
            project=project,
            group=out.name,
            name=f"rank-{world.rank}",
            id=f"{out.name}-{world.rank}",
            dir=str(directory),
            resume="allow",
            config={**asdict(config), "rank": world.rank, "world_size": world.size},
            settings={"silent": world.rank > 0},  # every rank would print the same summary
        )


def _need(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RefusedError(
            f"{module} is not installed; type pip install 'spawnlaunch[tracking]'", shared=True
        ) from error
