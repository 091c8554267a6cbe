"""How far a run is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Progress:
    """The position after ``step`` steps, which have used ``samples`` samples of the stream.

    ``evaluated`` is false while a validation of these weights is due. ``loss`` is the newest
    validation loss. ``best`` is the best value so far of what --best names, ``best_step`` where it
    was, and ``since_best`` the validations behind it. ``seconds`` of training were spent,
    validations and interruptions aside.
    """

    step: int = 0
    samples: int = 0
    evaluated: bool = True
    loss: float | None = None
    best: float | None = None
    best_step: int = -1
    since_best: int = 0
    seconds: float = 0.0

    def after_step(self, samples: int, seconds: float, evaluate: bool) -> Progress:
        """One step later."""
        return replace(
            self,
            step=self.step + 1,
            samples=self.samples + samples,
            seconds=self.seconds + seconds,
            evaluated=not evaluate,
        )

    def unevaluated(self) -> Progress:
        """The same step, to be validated again."""
        return replace(self, evaluated=False)

    def after_validation(self, loss: float, value: float, more_is_better: bool) -> Progress:
        """The same step with its validation loss, and the ``value`` that may be the best so far.

        What is not a number is never the best.
        """
        at = replace(self, evaluated=True, loss=loss)
        best = value if self.best is None else self.best
        better = value > best if more_is_better else value < best
        if better or (self.best is None and value == value):
            return replace(at, best=value, best_step=self.step, since_best=0)
        return replace(at, since_best=self.since_best + 1)

    def without_best(self) -> Progress:
        """The same step, before any validation."""
        return replace(self, best=None, best_step=-1, since_best=0)

    def state(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(vars(self))
