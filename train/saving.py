"""The directory of a run: lock it, save checkpoints to it, and resume from them.

The way of a resume: ``run.arrive`` -> ``claim`` (locks the directory) and ``find`` (which
checkpoint) -> ``run.train`` -> ``Saver.restore`` (reads and compares it, and loads the model, the
optimizer, the log and the generators) -> ``begin`` (removes later metrics) ->
``loop.steps_and_validations``.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

from . import checkpoint, checks, rng
from .checkpoint import copied
from .config import Config, aim, to_toml
from .distributed import World, from_every_rank, rank_0_alone
from .errors import RefusedError, StoppedError, advice, shared_refusal
from .log import METRICS, Log, go_back_to
from .progress import NOTHING, SAVE
from .schedule import Deadline, Position
from .training import Training

CONFIG = "config.toml"
EVALUATION = "evaluation.json"
LOCK = "lock"
LOCK_WAIT_S = 5.0

_locks: list[TextIO] = []  # a lock lasts while its file is open


def claim(config: Config, task: str) -> Path:
    """Make the directory, lock it for this process, and put an empty metrics file in it.

    Without --out a new one is named after the task and the time. With --overwrite it may hold a
    run, which stays until the new one is accepted. With --resume it may hold a run, which then
    goes on: with "auto" any, with a path one that was begun from that path. Raises RefusedError
    when the directory holds a run and neither --resume nor --overwrite says what to do with it,
    when another process writes to it, or when it cannot be made.
    """
    if config.resume == "auto" and config.out is None:
        raise RefusedError("--resume auto goes on with the run in --out; use --out as well")
    try:
        path = Path(config.out) if config.out is not None else _new_directory(task)
        path.mkdir(parents=True, exist_ok=True)
        _lock(path)
        checkpoint.clean_up(path)
        metrics = path / METRICS  # of a refused run it is empty
        is_free = (
            config.overwrite
            or _goes_on(path, config.resume)
            or not (checkpoint.all_in(path) or (metrics.exists() and metrics.stat().st_size > 0))
        )
        metrics.open("a").close()
    except OSError as error:
        raise RefusedError(
            f"cannot write to {config.out or 'runs'}: {error.strerror}; use another --out"
        ) from None
    if not is_free:
        to_do = "--resume auto to go on with it, or --overwrite to replace it"
        if config.eval_only:
            to_do = "or --resume auto to evaluate it"
        raise RefusedError(f"{path} already holds a run; use another --out, {to_do}")
    return path


def refuse_removed_source(config: Config, out: Path) -> None:
    """Raises RefusedError where --overwrite would remove the run that --init or --resume reads."""
    resumed = {"auto": str(out), "never": None}.get(config.resume, config.resume)
    for flag, source in (("--init", config.init), ("--resume", resumed)):
        places = [] if source is None else [Path(source).resolve(), *Path(source).resolve().parents]
        if config.overwrite and out.resolve() in places:
            raise RefusedError(
                f"--overwrite would remove what {flag} begins from, {source}; use another --out"
            )


def _goes_on(path: Path, resume: str) -> bool:
    """Whether --resume continues the run in a directory: with "auto", or the run's own --resume."""
    config = path / CONFIG
    if resume in ("auto", "never") or not config.exists():
        return resume == "auto"
    line = f"resume = {json.dumps(resume, ensure_ascii=False)}"
    return line in config.read_text(encoding="utf-8").splitlines()


def _lock(path: Path) -> None:
    """Keep other runs out of the directory until this process ends, however it ends.

    Where the file system has no locks (flock(2): ENOLCK, EOPNOTSUPP) nothing is kept out.
    """
    file = (path / LOCK).open("a+", encoding="utf-8")
    give_up_at = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > give_up_at:
                file.seek(0)
                raise RefusedError(
                    f"another run writes to {path}: {file.read().strip()}; wait for its end, or "
                    "use another --out"
                ) from None
            time.sleep(0.1)  # the run before may be about to end
        except OSError:
            return
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    _locks.append(file)


def begin(config: Config, out: Path, position: Position) -> None:
    """Write the configuration, and remove the metrics after the position where the run goes on.

    Raises RefusedError when that cannot be written.
    """
    try:
        if config.overwrite:
            clear(out)
        (out / CONFIG).write_text(to_toml(replace(config, out=str(out))), encoding="utf-8")
        go_back_to(out / METRICS, position.step, position.evaluated)
    except OSError as error:
        raise RefusedError(
            f"cannot write to {out}: {error.strerror}; {advice(error)}, or use another --out"
        ) from error


def clear(path: Path) -> None:
    """Remove the files that a run wrote, and leave all others."""
    checkpoint.remove_all(path)
    for name in (CONFIG, EVALUATION):
        (path / name).unlink(missing_ok=True)
    (path / METRICS).write_bytes(b"")


def _new_directory(task: str) -> Path:
    stem, number = f"{task}-{time.strftime('%Y%m%d-%H%M%S')}", 1
    while True:
        path = Path("runs", stem if number == 1 else f"{stem}-{number}")
        try:
            # Of several runs that start in the same second, only one can make it.
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1


# What a run goes on with, besides the weights and the state of the optimizer.
SAVED = {"identity", "samples", "streams", "log", "longest_save_s", "task", "rng", "progress"}


class Saver:
    """Saves and restores one run; every rank calls it at the same steps, and rank 0 writes."""

    def __init__(
        self,
        out: Path,
        identity: dict[str, Any],
        config: Config,
        world: World,
        training: Training,
        deadline: Deadline,
    ) -> None:
        self.order, self.stream, self.trainer = training.order, training.stream, training.trainer
        self.task, self.samples = training.task, training.samples
        optimizer = type(training.trainer.optimizer).__name__
        self.identity = {**identity, "order": training.order.kind.name, "optimizer": optimizer}
        self.config = config
        self.world = world
        self.out = out
        self.deadline = deadline
        self.writing: Future[None] | None = None  # of rank 0: the last checkpoint
        self.has_saved = False

    def save(self, position: Position, log: Log) -> None:
        """Copy the state of the run; a thread writes it while the training goes on."""
        self.trainer.clock.progress.phase(SAVE)
        began = time.monotonic()
        # Before the copy: a checkpoint that is still being written holds as much memory again.
        problem = None if self.writing is None else self.writing.exception()
        problem = problem or log.metrics.problem
        wrong = str(problem or self.trainer.changed_tensors())
        record = None if self.stream is None else self.stream.record()
        states = from_every_rank((rng.read(self.trainer.device), record, wrong))
        for *_, text in states:
            if text:
                raise StoppedError(text) from problem
        if self.world.rank == 0:
            weights, rest = self.trainer.state()
            training_state = {
                **rest,
                "task": copied(dict(self.task.state_dict())),
                "samples": self.samples,
                "progress": asdict(position),
                "log": log.state(),
                "rng": [randoms for randoms, *_ in states],
                "streams": [stream for _, stream, _ in states],
                "identity": self.identity,
                "config": asdict(self.config),
                "world_size": self.world.size,
                "global_batch": self.order.global_batch,
                "longest_save_s": self.deadline.longest_save_s,
            }
            thread = ThreadPoolExecutor(max_workers=1)
            self.writing = thread.submit(self._write, position, weights, training_state, began)
            thread.shutdown(wait=False)  # after this
        if not self.has_saved:
            self.finish()  # so that an error of the first checkpoint ends every rank now
        self.has_saved = True
        self.trainer.clock.progress.phase(NOTHING)

    def _write(
        self,
        position: Position,
        weights: dict[str, Any],
        training_state: dict[str, Any],
        began: float,
    ) -> None:
        """Write a checkpoint of copies, which no longer change, and remove old ones."""
        try:
            checkpoint.write(
                self.out, position.step, weights, training_state, check=not self.has_saved
            )
            self.deadline.saved_in(time.monotonic() - began)
            checkpoint.prune(self.out, self.config.keep, position.best_step, position.step)
        except OSError as error:
            raise StoppedError(
                f"cannot write the checkpoint of step {position.step} to {self.out}: "
                f"{error.strerror}; {advice(error)}, or go on elsewhere with --resume and --out"
            ) from error

    def finish(self) -> None:
        """Wait until the last checkpoint is on the disk, on every rank."""
        rank_0_alone(self.wait, self.world, self.trainer.device)

    def wait(self) -> None:
        """Wait until this rank's checkpoint is on the disk; raises the error of its thread."""
        if self.writing is not None:
            self.writing.result()

    def restore(self, path: Path | None, log: Log) -> Position:
        """Restore a checkpoint, or begin without one; every rank reads it. Returns the position."""
        if path is None:
            return Position()
        weights, training_state = checkpoint.load(path)
        self._compare(path, training_state)
        try:
            self.trainer.load(weights, training_state)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise shared_refusal(
                f"{path} is of another model: {reason}; use the flags that it was trained with, or "
                "another --out"
            ) from error
        if self.stream is not None:
            self.stream.go_on(training_state["streams"])
        log.load(training_state["log"])
        self.deadline.saved_in(training_state["longest_save_s"])
        line = f"resumed from step {training_state['progress']['step']}"
        if changed := changes(
            training_state, self.config, self.world.size, self.order.global_batch
        ):
            line += f"; changed: {', '.join(changed)}"
        log.screen.line(line)
        # In a larger world than before the new ranks begin with numbers of their own.
        self.task.load_state_dict(training_state["task"])
        if self.world.rank < len(training_state["rng"]):
            rng.write(training_state["rng"][self.world.rank], self.trainer.device)
        position = Position(**training_state["progress"])
        same_measure = aim(training_state["config"]["best"]) == aim(self.config.best)
        # The best checkpoint of another directory is not here, and none here was compared with it.
        is_here = path.resolve().parent == self.out.resolve()
        if same_measure and is_here:
            return position
        return replace(position, best=None, best_step=-1, since_best=0)

    def _compare(self, path: Path, training_state: dict[str, Any]) -> None:
        if missing := SAVED - set(training_state):
            raise shared_refusal(
                f"{path} has no {min(missing)!r}, as checkpoints of an older version; begin a new "
                "run with its weights, by --init and another --out"
            )
        saved = training_state["identity"]
        for name, value in self.identity.items():
            if saved.get(name) != value:
                raise shared_refusal(
                    f"{path} is of another run: its {name} is {saved.get(name)!r} and yours is "
                    f"{value!r}; use what it was, or another --out"
                )
        if other := checks.difference(training_state["samples"], self.samples):
            raise shared_refusal(
                f"{path} is of a run with other samples: {other}; give it the samples that it had, "
                "or begin a new run with --init and another --out"
            )


# Flags that a resumed run may change without a word, since they do not change the training.
UNREPORTED = (
    *("options", "out", "overwrite", "resume", "init", "max_time"),
    *("eval_only", "eval_splits"),
)


def changes(saved: dict[str, Any], config: Config, world_size: int, batch: int) -> list[str]:
    """The differences from the run that wrote a checkpoint, as "--lr 0.001 -> 0.0003"."""
    before, now = saved["config"], asdict(config)
    before, now = {**before, **before["options"]}, {**now, **now["options"]}
    changed = []
    for name in now:
        if name not in UNREPORTED and name in before and before[name] != now[name]:
            both = before[name], now[name]
            shown = [f"{v:g}" if isinstance(v, float) else str(v) for v in both]
            changed.append(f"--{name.replace('_', '-')} {' -> '.join(shown)}")
    if saved["world_size"] != world_size:
        changed.append(f"{saved['world_size']} -> {world_size} ranks")
    if saved["global_batch"] != batch:
        changed.append(f"{batch} samples per step, was {saved['global_batch']}")
    return changed


def find(config: Config, out: Path) -> tuple[Path | None, list[str]]:
    """Return the checkpoint that ``--resume`` means, and a line on each that is damaged.

    Raises RefusedError when a path was asked for and nothing whole is there.
    """
    refuse_removed_source(config, out)
    if config.resume == "never" or (config.eval_only and config.init is not None):
        return None, []
    # A run that began from a path goes on from its own checkpoints.
    if config.resume == "auto" or (checkpoint.all_in(out) and not config.overwrite):
        return checkpoint.newest_whole(out)
    return checkpoint.meant_by("--resume", config.resume)
