"""What a checkpoint of a run holds, and how a run goes on from one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import checkpoint, rng
from .config import Config
from .distributed import World, from_every_rank, rank_0_alone
from .errors import RefusedError
from .learner import Learner
from .progress import Progress
from .report import Log


class Saver:
    """Saves and restores one run; every rank calls it at the same steps, and rank 0 writes."""

    def __init__(
        self, out: Path, identity: dict[str, Any], config: Config, world: World, learner: Learner
    ) -> None:
        self.identity = identity
        self.config = config
        self.world = world
        self.learner = learner
        self.writer = checkpoint.Writer(out, config.keep) if world.rank == 0 else None
        self.saved: Progress | None = None

    def save(self, at: Progress, log: Log) -> None:
        """Copy the state of this moment; it is written while the training goes on."""
        randoms = from_every_rank(rng.read(self.learner.device))
        if self.writer is not None:
            # Before the copy: one that is still being written holds as much memory again.
            self.writer.wait()
            weights, rest = self.learner.state()
            training = {
                **rest,
                "progress": at.state(),
                "log": log.state(),
                "rng": randoms,
                "identity": self.identity,
                "config": asdict(self.config),
                "world_size": self.world.size,
            }
            self.writer.write(at.step, weights, training, at.best_step)
        self.saved = at

    def finish(self) -> None:
        """Wait until the last checkpoint is on the disk, on every rank."""
        rank_0_alone(self._wait, "write the checkpoint", self.world, self.learner.device)

    def _wait(self) -> None:
        if self.writer is not None:
            self.writer.wait()

    def restore(self, path: Path | None, log: Log) -> Progress:
        """Go on from a checkpoint, or from the beginning; every rank reads it."""
        if path is None:
            return Progress()
        weights, training = checkpoint.load(path)
        self._compare(path, training["identity"])
        self.learner.load(weights, training)
        log.load(training["log"])
        # In a larger world than before the new ranks begin with numbers of their own.
        if self.world.rank < len(training["rng"]):
            rng.write(training["rng"][self.world.rank], self.learner.device)
        return Progress(**training["progress"])

    def _compare(self, path: Path, saved: dict[str, Any]) -> None:
        for name, value in self.identity.items():
            if saved[name] != value:
                raise RefusedError(
                    f"{path} is of another run: its {name} is {saved[name]!r} and yours is "
                    f"{value!r}; type what it was, or another --out",
                    shared=True,
                )


def find(resume: str, out: Path) -> tuple[Path | None, list[str]]:
    """The checkpoint that ``--resume`` means, and a line on each that is damaged.

    Raises RefusedError when a path was asked for and nothing whole is there.
    """
    if resume == "never":
        return None, []
    if resume == "auto":
        return checkpoint.newest_whole(out)
    path = Path(resume)
    if path.is_dir() and checkpoint.step_of(path.resolve()) < 0:
        found, complaints = checkpoint.newest_whole(path)
    else:
        found, complaints = path, []
        if wrong := checkpoint.damage(path):
            raise RefusedError(f"--resume: {path} is damaged: {wrong}; type the path of another")
    if found is None:
        raise RefusedError(f"--resume: there is no checkpoint in {path}; type the path of one")
    return found, complaints
