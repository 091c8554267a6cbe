"""How far a run is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Progress:
    """The position after ``step`` steps, which have used ``samples`` samples of the stream.

    ``evaluated`` is false while a validation of these weights is due. ``loss`` is the newest
    validation loss, ``best`` the lowest and ``best_step`` where it was. ``seconds`` of training
    were spent, validations and interruptions aside.
    """

    step: int = 0
    samples: int = 0
    evaluated: bool = True
    loss: float | None = None
    best: float | None = None
    best_step: int = -1
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

    def after_validation(self, loss: float) -> Progress:
        """The same step with its validation loss; one that is not a number is never the best."""
        if loss < (float("inf") if self.best is None else self.best):
            return replace(self, evaluated=True, loss=loss, best=loss, best_step=self.step)
        return replace(self, evaluated=True, loss=loss)

    def state(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(vars(self))
