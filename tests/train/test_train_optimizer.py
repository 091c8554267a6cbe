"""Learning rates are those of torch's schedules, and a resumed run has its optimizer back."""

from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train.config import Config
from tests.support.late import Late
from tests.train.ranks import assert_refused, complete, run, weights

torch = Late("torch")

STEPS = 8
TASK = """
import torch
from torch import nn


class Line:
    def model(self):
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def dataset(self, split):
        return torch.arange(90.0).view(30, 3).sin()

    def loss(self, model, batch):
        return (5 * model(batch) - 3).square().sum(), len(batch)


class Counting(torch.optim.SGD):
    # Keeps its state in its groups, as optimizers without a schedule do.
    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            group["seen"].add_(1)
        return super().step(closure)


class Counts(Line):
    def __init__(self, decay: float = 0.1):
        self.decay = decay

    def optimizer(self, model, lr):
        groups = [{"params": [one], "seen": torch.zeros(())} for one in model.parameters()]
        return Counting(groups, lr=lr, weight_decay=self.decay)


class Other(Line):
    def optimizer(self, model, lr):
        return torch.optim.RMSprop(model.parameters())
"""
FLAGS = (
    *("--device", "cpu", "--steps", str(STEPS), "--global-batch", "6", "--log-every", "1"),
    *("--eval-every", "0", "--save-every", "0", "--lr", "0.02", "--out", "here"),
    *("--resume", "auto", "--warmup", "0"),
)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "final"), [("cosine", 0.1), ("linear", 0.25), ("constant", None)])
def test_a_schedule_is_torchs(kind: str, final: float | None) -> None:
    from spawnlaunch.train.schedule import schedule

    ours = schedule(Config(lr=1.0, schedule=kind, final_lr=final, warmup=0, steps=20), 100, 8)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedules = torch.optim.lr_scheduler
    theirs: Any = {
        "cosine": lambda: schedules.CosineAnnealingLR(optimizer, 20, eta_min=0.1),
        "linear": lambda: schedules.LinearLR(optimizer, 1.0, 0.25, total_iters=20),
        "constant": lambda: schedules.ConstantLR(optimizer, 1.0),
    }[kind]()
    for step in range(1, 21):
        optimizer.step()
        theirs.step()
        assert ours.share(step) == pytest.approx(optimizer.param_groups[0]["lr"])


@pytest.mark.full
def test_a_resumed_run_has_the_decay_and_rate_that_were_typed_for_it(cwd: Path) -> None:
    """The state of AdamW is the checkpoint's, and what was typed is not."""
    flags = (*FLAGS, "--task", "task.py:Line")
    complete(1, *flags, "--schedule", "linear", "--final-lr", "0", cwd=cwd)
    more = ("--steps", str(STEPS + 1), "--schedule", "constant", "--betas", "0,0")
    complete(1, *flags, *more, "--lr", "0.5", "--weight-decay", "0", cwd=cwd)
    before, after = (weights(cwd / "here", step) for step in (STEPS, STEPS + 1))
    # The first step of Adam without memory moves each weight by the rate.
    for name, weight in after.items():
        moved = (weight - before[name]).abs().flatten().tolist()
        assert moved == pytest.approx(len(moved) * [0.5], rel=1e-3)
    (cwd / "task.py").write_text(f"{TASK}\n\nclass Line(Other):\n    pass\n")
    said = "here/step-00000009 is of another run: its optimizer is 'AdamW' and yours is 'RMSprop'"
    assert_refused(run(1, *flags, cwd=cwd), said)


@pytest.mark.full
def test_a_resumed_run_has_what_an_optimizer_keeps_in_its_groups(cwd: Path) -> None:
    flags = (*FLAGS, "--task", "task.py:Counts", "--schedule", "constant")
    for more, decay in ((0, "0.1"), (1, "0.1"), (2, "0.2")):
        complete(2, *flags, "--steps", str(STEPS + more), "--decay", decay, cwd=cwd)
        file = cwd / "here" / f"step-{STEPS + more:08}" / "training.pt"
        for group in torch.load(file, weights_only=True)["optimizer"]["param_groups"]:
            assert group["steps"] == STEPS + more
            assert group["seen"] == STEPS + more
            assert (group["lr"], group["weight_decay"]) == (0.02, float(decay))
