"""What a checkpoint of a run holds, and how a run goes on from one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import checkpoint, rng
from .config import Config
from .distributed import World, from_every_rank, rank_0_alone
from .errors import RefusedError, StoppedError
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
        self.out = out
        self.global_batch = round(learner.per_rank * world.size)
        self.writer = checkpoint.Writer(out, config.keep) if world.rank == 0 else None
        self.saved: Progress | None = None

    def save(self, at: Progress, log: Log) -> None:
        """Copy the state of this moment; it is written while the training goes on."""
        problem: BaseException | None = None
        if self.writer is not None:
            # Before the copy: one that is still being written holds as much memory again.
            problem = self.writer.problem()
        randoms, problems = zip(
            *from_every_rank((rng.read(self.learner.device), str(problem or ""))), strict=True
        )
        if problems[0]:
            raise StoppedError(problems[0]) from problem
        if self.writer is not None:
            weights, rest = self.learner.state()
            training = {
                **rest,
                "progress": at.state(),
                "log": log.state(),
                "rng": list(randoms),
                "identity": self.identity,
                "config": asdict(self.config),
                "world_size": self.world.size,
                "global_batch": self.global_batch,
            }
            self.writer.write(at.step, weights, training, at.best_step)
        if self.saved is None:
            self.finish()  # so that what cannot be kept is found now, and on every rank
        self.saved = at

    def look_for_room(self, steps: int) -> None:
        """Raises RefusedError on all ranks when what is to be kept will not fit on the disk."""
        config, size = self.config, self.learner.state_bytes()
        saves = 1 + sum(steps // every for every in (config.save_every, config.eval_every) if every)

        def look() -> None:
            missing = min(config.keep + 2, saves) - len(checkpoint.all_in(self.out))
            checkpoint.room_for(self.out, size, max(1, missing))

        rank_0_alone(look, "look for room", self.world, self.learner.device)

    def finish(self) -> None:
        """Wait until the last checkpoint is on the disk, on every rank."""
        rank_0_alone(self.wait, "write the checkpoint", self.world, self.learner.device)

    def wait(self) -> None:
        """Wait until what this rank is writing is on the disk; raises what went wrong."""
        if self.writer is not None:
            self.writer.wait()

    def restore(self, path: Path | None, log: Log) -> Progress:
        """Go on from a checkpoint, or from the beginning; every rank reads it."""
        if path is None:
            return Progress()
        weights, training = checkpoint.load(path)
        self._compare(path, training["identity"])
        try:
            self.learner.load(weights, training)
        except (RuntimeError, ValueError) as error:
            what = " ".join(str(error).split())
            raise RefusedError(
                f"{path} is of another model: {what}; type the flags that it was trained with, or "
                "another --out",
                shared=True,
            ) from error
        log.load(training["log"])
        said = f"resumed from step {training['progress']['step']}"
        if changed := changes(training, self.config, self.world.size, self.global_batch):
            said += f"; changed: {', '.join(changed)}"
        log.screen.line(said)
        # In a larger world than before the new ranks begin with numbers of their own.
        if self.world.rank < len(training["rng"]):
            rng.write(training["rng"][self.world.rank], self.learner.device)
        at = Progress(**training["progress"])
        same = training["config"].get("best", "loss") == self.config.best
        return at if same else at.without_best()

    def _compare(self, path: Path, saved: dict[str, Any]) -> None:
        for name, value in self.identity.items():
            if saved[name] != value:
                raise RefusedError(
                    f"{path} is of another run: its {name} is {saved[name]!r} and yours is "
                    f"{value!r}; type what it was, or another --out",
                    shared=True,
                )


# What a run goes on with as well as with anything else, and so is no change of it.
OWN_AFFAIR = ("options", "out", "overwrite", "resume", "init", "max_time", "requeue")


def changes(saved: dict[str, Any], config: Config, world_size: int, batch: int) -> list[str]:
    """What differs from the run that wrote a checkpoint, as "--lr 0.001 -> 0.0003"."""
    before, now = saved["config"], asdict(config)
    before, now = {**before, **before["options"]}, {**now, **now["options"]}
    told = []
    for name in now:
        if name not in OWN_AFFAIR and name in before and before[name] != now[name]:
            shown = [
                f"{v:g}" if isinstance(v, float) else str(v) for v in (before[name], now[name])
            ]
            told.append(f"--{name.replace('_', '-')} {' -> '.join(shown)}")
    if saved["world_size"] != world_size:
        told.append(f"{saved['world_size']} -> {world_size} ranks")
    if saved.get("global_batch", batch) != batch:
        told.append(f"{batch} samples per step, was {saved['global_batch']}")
    return told


def find(resume: str, out: Path) -> tuple[Path | None, list[str]]:
    """The checkpoint that ``--resume`` means, and a line on each that is damaged.

    Raises RefusedError when a path was asked for and nothing whole is there.
    """
    if resume == "never":
        return None, []
    if resume == "auto" or checkpoint.all_in(out):  # a path's run goes on too, once it has begun
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
