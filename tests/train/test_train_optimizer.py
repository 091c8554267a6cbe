"""Learning rates, clipping and AdamW's flags, against a loop written with torch's own functions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from spawnlaunch.train.config import Config
from spawnlaunch.train.errors import RefusedError
from spawnlaunch.train.order import Order, Shuffled
from spawnlaunch.train.schedule import schedule
from tests.train.ranks import complete, metrics, run

STEPS, BATCH, SAMPLES = 8, 6, 30
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


class Groups(Line):
    # Two groups with rates of their own; what the first layer has for gradients is not used.
    def optimizer(self, model, lr):
        head = model[2]
        groups = [{"params": [head.weight]}, {"params": [head.bias], "lr": lr / 4}]
        return torch.optim.SGD(groups, lr=3 * lr, momentum=0.9)


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
"""
FLAGS = (
    *("--device", "cpu", "--steps", str(STEPS), "--global-batch", str(BATCH), "--log-every", "1"),
    *("--eval-every", "0", "--save-every", "0", "--lr", "0.02", "--out", "here"),
)


def reference(own: bool, betas: tuple[float, float], clip: float, rates: list[float]) -> Any:
    """The weights after STEPS steps, each with this share of the rates."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    head: Any = model[2]
    if own:
        groups = [{"params": [head.weight]}, {"params": [head.bias], "lr": 0.005}]
        optimizer: Any = torch.optim.SGD(groups, lr=0.06, momentum=0.9)
    else:
        matrices = [p for p in model.parameters() if p.dim() == 2]
        rest = [p for p in model.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": 0.3}, {"params": rest, "weight_decay": 0}]
        optimizer = torch.optim.AdamW(groups, lr=0.02, betas=betas)
    first = [group["lr"] for group in optimizer.param_groups]
    samples = torch.arange(90.0).view(30, 3).sin()
    order = Order(Shuffled(SAMPLES, 0), BATCH)
    for step, share in enumerate(rates):
        batch = samples[order.batch(step * BATCH, 0).indices]
        torch.autograd.backward((5 * model(batch) - 3).square().mean())
        clipped = [p for group in optimizer.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(clipped, clip)
        for group, rate in zip(optimizer.param_groups, first, strict=True):
            group["lr"] = rate * share
        optimizer.step()
        model.zero_grad()
    return model.state_dict()


@pytest.mark.full
@pytest.mark.parametrize(("world", "loaders"), [(1, 0), *((n, k) for n in (2, 3) for k in (0, 2))])
@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("Groups", ("--schedule", "linear", "--final-lr", "0.004", "--warmup", "3")),
        ("Line", ("--schedule", "constant", "--betas", "0.8,0.9", "--weight-decay", "0.3")),
    ],
)
def test_a_run_is_what_a_loop_by_hand_makes_of_the_flags(
    tmp_path: Path, task: str, more: tuple[str, ...], world: int, loaders: int
) -> None:
    (tmp_path / "task.py").write_text(TASK)
    flags = ("--task", f"task.py:{task}", "--clip", "0.7", "--loader-workers", str(loaders))
    complete(world, *FLAGS, *flags, *more, cwd=tmp_path)
    own = task == "Groups"
    if own:
        shares = [min(1, k / 4) * (0.2 + 0.8 * (1 - k / STEPS)) for k in range(1, STEPS + 1)]
    else:
        shares = [1 / 2, *((STEPS - 1) * [1.0])]  # a seventh of 8 steps is one
    weights = reference(own, (0.8, 0.9), 0.7, shares)
    saved = torch.load(tmp_path / "here" / f"step-{STEPS:08}" / "weights.pt", weights_only=True)
    for name, weight in weights.items():
        torch.testing.assert_close(saved[name], weight, rtol=1e-4, atol=1e-6)
    highest = 0.06 if own else 0.02
    assert metrics(tmp_path / "here", "lr") == pytest.approx([highest * s for s in shares])


@pytest.mark.parametrize(("kind", "final"), [("cosine", 0.1), ("linear", 0.25), ("constant", None)])
def test_a_schedule_is_torchs(kind: str, final: float | None) -> None:
    config = Config(lr=1.0, schedule=kind, final_lr=final, warmup=0, steps=20)
    ours = schedule(config, 100, 8)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    theirs: Any = {
        "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, 20, eta_min=0.1),
        "linear": lambda: lr_scheduler.LinearLR(optimizer, 1.0, 0.25, total_iters=20),
        "constant": lambda: lr_scheduler.ConstantLR(optimizer, 1.0),
    }[kind]()
    for step in range(1, 21):
        optimizer.step()
        theirs.step()
        assert ours.share(step) == pytest.approx(optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Config(warmup=9), "--warmup is 9, and the run has 8 steps; type 8 or less"),
        (Config(lr=0.1, final_lr=0.2), "--final-lr is 0.2, above --lr, which is 0.1; type 0.1 or"),
        (Config(schedule="constant", final_lr=0), "--final-lr says that the learning rate falls,"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(config: Config, said: str) -> None:
    with pytest.raises(RefusedError) as refused:
        schedule(replace(config, steps=8), 100, 8)
    assert str(refused.value).startswith(said)


@pytest.mark.full
def test_a_resumed_run_has_the_decay_and_rate_that_were_typed_for_it(tmp_path: Path) -> None:
    """The state of AdamW is the checkpoint's, and what was typed is not."""
    (tmp_path / "task.py").write_text(TASK)
    flags = ("--task", "task.py:Line", "--resume", "auto", "--warmup", "0")
    complete(1, *FLAGS, *flags, "--schedule", "linear", "--final-lr", "0", cwd=tmp_path)
    more = ("--steps", str(STEPS + 1), "--schedule", "constant", "--betas", "0,0")
    complete(1, *FLAGS, *flags, *more, "--lr", "0.5", "--weight-decay", "0", cwd=tmp_path)
    before, after = (
        torch.load(tmp_path / "here" / f"step-{step:08}" / "weights.pt", weights_only=True)
        for step in (STEPS, STEPS + 1)
    )
    # The first step of Adam without memory moves each weight by the rate.
    for name, weight in after.items():
        moved = (weight - before[name]).abs().flatten().tolist()
        assert moved == pytest.approx(len(moved) * [0.5], rel=1e-3)
    (ended,) = run(1, *FLAGS, *flags, "--warmup", "99", cwd=tmp_path)
    assert ended.status == 2
    assert ended.err.endswith("has 8 steps; type 8 or less\n")


@pytest.mark.full
def test_a_resumed_run_has_what_an_optimizer_keeps_in_its_groups(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK)
    flags = (*FLAGS, "--task", "task.py:Counts", "--resume", "auto", "--schedule", "constant")
    for more, decay in ((0, "0.1"), (1, "0.1"), (2, "0.2")):
        complete(2, *flags, "--steps", str(STEPS + more), "--decay", decay, cwd=tmp_path)
        file = tmp_path / "here" / f"step-{STEPS + more:08}" / "training.pt"
        for group in torch.load(file, weights_only=True)["optimizer"]["param_groups"]:
            assert group["steps"] == STEPS + more
            assert group["seen"] == STEPS + more
            assert (group["lr"], group["weight_decay"]) == (0.02, float(decay))


@pytest.mark.full
def test_a_run_does_not_go_on_with_another_kind_of_optimizer(tmp_path: Path) -> None:
    flags = (*FLAGS, "--task", "task.py:Line", "--resume", "auto")
    (tmp_path / "task.py").write_text(TASK)
    complete(1, *flags, cwd=tmp_path)
    other = (
        "class Line(Line):\n    optimizer = lambda _, m, lr: torch.optim.RMSprop(m.parameters())"
    )
    (tmp_path / "task.py").write_text(f"{TASK}\n\n{other}\n")
    (ended,) = run(1, *flags, cwd=tmp_path)
    assert ended.status == 2
    assert "optimizer is 'AdamW'" in ended.err
