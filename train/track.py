"""The numbers of a run for TensorBoard and Weights & Biases, where a person wants them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .config import Config
from .distributed import World
from .errors import RefusedError
from .preemption import deaf_children


class Trackers:
    """Whatever was asked for; nothing by default."""

    def __init__(self, config: Config, out: Path, world: World) -> None:
        self.board: Any = None
        self.run: Any = None
        if config.tensorboard:
            # On every rank, so that all refuse together where it is not installed.
            tensorboard = _need("torch.utils.tensorboard")
            if world.rank == 0:
                self.board = tensorboard.SummaryWriter(str(out / "tensorboard"))
        if config.wandb is not None:
            self.run = _wandb_run(config.wandb, config, out, world)

    def log(self, step: int, shared: Mapping[str, Any], own: Mapping[str, float]) -> None:
        """Numbers of a step: those that all ranks share, and those of this rank."""
        numbers = {name: value for name, value in shared.items() if isinstance(value, float)}
        if self.board is not None:
            for name, value in numbers.items():
                self.board.add_scalar(name, value, step)
        if self.run is not None:
            self.run.log({**numbers, **own}, step=step)

    def close(self) -> None:
        """Write what is left."""
        if self.board is not None:
            self.board.close()
        if self.run is not None:
            self.run.finish()


def _wandb_run(project: str, config: Config, out: Path, world: World) -> Any:
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
