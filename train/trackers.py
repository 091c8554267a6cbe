"""Send the numbers of a run to TensorBoard, and to Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from .config import Config
from .distributed import World
from .ending import block_signals_in_children
from .errors import needed


class Tracker(NamedTuple):
    """Takes the numbers of a step: those that all ranks share, and those of this rank."""

    log: Callable[[int, Mapping[str, Any], Mapping[str, float]], None]
    close: Callable[[], None]  # writes what is left


def trackers(config: Config, out: Path, world: World) -> list[Tracker]:
    """Return the trackers that the flags ask for; none by default.

    Raises RefusedError on all ranks together where what they need is not installed.
    """
    used: list[Tracker] = []
    if config.tensorboard:
        tensorboard = needed("torch.utils.tensorboard", "tracking")
        if world.rank == 0:
            used.append(_tensorboard(tensorboard.SummaryWriter(str(out / "tensorboard"))))
    if config.wandb is not None:
        run = _run(config.wandb, config, out, world)

        def log(step: int, shared: Mapping[str, Any], own: Mapping[str, float]) -> None:
            run.log({**_numbers(shared), **own}, step=step)

        used.append(Tracker(log, run.finish))
    return used


def _tensorboard(writer: Any) -> Tracker:
    """Return a tracker that writes shared numbers as scalars, for rank 0."""

    def log(step: int, shared: Mapping[str, Any], _own: Mapping[str, float]) -> None:
        for name, value in _numbers(shared).items():
            writer.add_scalar(name, value, step)

    return Tracker(log, writer.close)


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, float)}


def _run(project: str, config: Config, out: Path, world: World) -> Any:
    """Begin this rank's run, in a group with those of all ranks, so that a slow one stands out.

    The id is the same after a resume, so that its numbers go on in the same run.
    """
    directory = out / "wandb" / f"rank-{world.rank}"
    directory.mkdir(parents=True, exist_ok=True)
    wandb = needed("wandb", "tracking")
    # Its own process has to outlive the signal that asks the training to save.
    with block_signals_in_children():
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
