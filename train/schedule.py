"""The length of a run, its position, the actions due at each step, and its deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .config import EPOCH, Config, seconds
from .errors import shared_refusal
from .order import NO_END

FINAL_LR_SHARE = 0.05
MOST_WARMUP, WARMUP_PART = 50, 7  # by default so many steps, or the seventh part of a short run


def global_batch(config: Config, world_size: int) -> int:
    """The samples of one step of all ranks together.

    Raises RefusedError when ``--global-batch`` leaves a forward pass without a sample.
    """
    passes = world_size * config.accumulate
    if config.global_batch is None:
        return config.batch_size * passes
    if config.global_batch < passes:
        raise shared_refusal(
            f"--global-batch is {config.global_batch}, and {world_size} ranks make {passes} "
            f"forward passes per step; use {passes} or more"
        )
    return config.global_batch


@dataclass(frozen=True)
class Position:
    """The position after ``step`` steps, which have used ``samples`` samples of the stream.

    ``taken`` of them were those of the last step, or 0 if that is unknown. ``evaluated`` is false
    while a validation of these weights is due. ``loss`` is the newest validation loss. ``best`` is
    the best value so far of what --best names, ``best_step`` where it was, and ``since_best`` the
    validations after it. ``seconds`` of training were spent, validations and interruptions aside.
    """

    step: int = 0
    samples: int = 0
    evaluated: bool = True
    loss: float | None = None
    best: float | None = None
    best_step: int = -1
    since_best: int = 0
    seconds: float = 0.0
    taken: int = 0

    def after_step(self, samples: int, seconds: float, evaluate: bool) -> Position:
        """The position one step later."""
        return replace(
            self,
            step=self.step + 1,
            samples=self.samples + samples,
            taken=samples,
            seconds=self.seconds + seconds,
            evaluated=not evaluate,
        )

    def after_validation(self, loss: float, value: float, more_is_better: bool) -> Position:
        """The position with its validation loss, and with ``value`` if that is the best so far.

        A value that is not a number is never the best.
        """
        at = replace(self, evaluated=True, loss=loss)
        best = value if self.best is None else self.best
        better = value > best if more_is_better else value < best
        if better or (self.best is None and value == value):
            return replace(at, best=value, best_step=self.step, since_best=0)
        return replace(at, since_best=self.since_best + 1)


@dataclass(frozen=True)
class Schedule:
    """The learning rate of each step, and the validations and checkpoints due after it."""

    config: Config
    length: int  # of the data set
    steps: int
    warmup: int
    final: float  # the learning rate of the last step, as a share of the highest

    def share(self, step: int) -> float:
        """The learning rate of a step counted from 1, as a share of the highest.

        It rises to --lr, which step ``warmup`` has, or the first one, and falls from there on to
        --final-lr at the last step. A function of the step alone, so that a run goes on with any
        flags; the schedulers of torch.optim keep counts of their own in a checkpoint.
        """
        peak = max(1, self.warmup)
        if step <= peak:
            return step / peak
        done = (step - peak) / (self.steps - peak)
        decay = {
            "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
            "linear": 1.0 - done,
            "constant": 1.0,
        }
        return self.final + (1.0 - self.final) * decay[self.config.schedule]

    def is_due(self, every: int | str, step: int, samples: int, taken: int) -> bool:
        """Whether an action is due after a step of ``taken`` samples, the last of ``samples``."""
        if step == self.steps:
            return True
        if every == EPOCH:
            return samples // self.length > (samples - taken) // self.length
        return bool(every) and step % int(every) == 0

    def is_impatient(self, at: Position) -> bool:
        """Whether as many validations as ``--patience`` says were not the best so far."""
        return self.config.patience is not None and at.since_best >= self.config.patience

    def complete(self, at: Position) -> bool:
        """Whether no step and no validation is left to do."""
        return at.evaluated and (at.step >= self.steps or self.is_impatient(at))

    def worth_saving(self, at: Position) -> bool:
        """Whether a checkpoint is due at this position, or it is the best so far."""
        return at.evaluated and (
            at.best_step == at.step
            or self.is_due(self.config.save_every, at.step, at.samples, at.taken)
            or self.complete(at)
        )


def schedule(config: Config, length: int, batch: float) -> Schedule:
    """Make the schedule of the flags, for ``length`` samples in steps of ``batch`` on the mean.

    With ``--epochs`` the last step is completed by samples of the next epoch, as is every step in
    which an epoch ends. Raises RefusedError when the flags contradict each other, or count epochs
    that have no end.
    """
    if length == NO_END and (config.epochs or EPOCH in (config.eval_every, config.save_every)):
        raise shared_refusal(
            "--epochs, --eval-every epoch and --save-every epoch need samples with a known len(); "
            "use numbers of steps"
        )
    steps = math.ceil(config.epochs * length / batch) if config.epochs else config.steps
    if config.warmup is not None and config.warmup > steps:
        raise shared_refusal(
            f"--warmup is {config.warmup}, and the run has {steps} steps; use {steps} or less"
        )
    final = FINAL_LR_SHARE if config.final_lr is None else config.final_lr / config.lr
    every = config.eval_every
    if config.patience and not (every == EPOCH or 0 < int(every) <= steps):
        raise shared_refusal(
            "--patience counts validations, and there is none but the last; use --eval-every "
            f"{steps // 10 or 1} or so"
        )
    warmup = min(MOST_WARMUP, steps // WARMUP_PART) if config.warmup is None else config.warmup
    return Schedule(config, length, steps, warmup, final)


# Kept for the last save: a share of the time that was given, but at most so many seconds; and once
# a save was seen, so many times the longest, but at most half of the time.
MARGIN_SHARE, MARGIN_S = 0.1, 60.0
SAVES, MOST_SHARE = 2.0, 0.5


class Deadline:
    """Decides when to begin the last save: in time for the deadline, or once a signal is ``noted``.

    ``started`` is a Unix time, as Slurm's is; from then on the monotonic clock counts.
    """

    def __init__(
        self,
        max_time: str | None,
        environ: Mapping[str, str],
        started: float,
        noted: Sequence[str] = (),
    ) -> None:
        self.noted = noted
        self.started = time.monotonic()
        limits: list[tuple[float, str]] = []
        if max_time is not None:
            limits.append((seconds(max_time), "the time of --max-time"))
        slurm = environ.get("SLURM_JOB_END_TIME", "")
        if slurm.isdecimal():
            limits.append((max(0.0, float(slurm) - started), "the time of the Slurm job"))
        self.limit_s, self.name = min(limits, default=(float("inf"), ""))
        self.longest_save_s = 0.0

    def saved_in(self, took_s: float) -> None:
        """Take into account that a checkpoint took so many seconds."""
        self.longest_save_s = max(self.longest_save_s, took_s)

    def margin_s(self) -> float:
        """The time that is kept for the last save."""
        usual = min(MARGIN_S, MARGIN_SHARE * self.limit_s)
        return max(usual, min(SAVES * self.longest_save_s, MOST_SHARE * self.limit_s))

    def is_over(self) -> bool:
        """Whether this process wants to stop."""
        return bool(self.reason())

    def reason(self) -> str:
        """The reason why this process wants to stop; "" if it does not."""
        if self.noted:
            return self.noted[0]
        elapsed_s = time.monotonic() - self.started
        return self.name if elapsed_s >= self.limit_s - self.margin_s() else ""
