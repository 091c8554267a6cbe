"""Parameters that are not used, do not learn, are complex, tied, frozen, or another model's."""

from pathlib import Path

import pytest
import torch
from torch import nn

from spawnlaunch.train.order import Order, Shuffled
from tests.train.ranks import complete, run

STEPS, BATCH = 5, 6
TASK = """
import os, torch
from torch import nn

class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.passes = kind, 0
        self.one, self.two = nn.Linear(3, 1), nn.Linear(3, 1)
        if kind == "tied":
            self.two.weight = self.one.weight
        if kind == "frozen":
            self.two.requires_grad_(False)
        if kind == "none":
            self.requires_grad_(False)
        if kind == "complex":
            self.phase = nn.Parameter(torch.ones(1, dtype=torch.complex64))

    def forward(self, x):
        out = self.one(x)
        if self.kind == "unused":
            return out
        if self.kind == "not at last":
            self.passes += torch.is_grad_enabled()
            if self.passes == 1 + int(os.environ["STEPS"]):  # one is for the wrapper's buckets
                return out
        # The first global batch of six has rows on both sides of it.
        if self.kind == "now and then" and not (x[:, 0] > 0.9).any():
            return out
        return out + self.two(x)


class Line:
    def __init__(self, kind: str):
        self.kind = kind

    def model(self):
        return Net(self.kind)

    def dataset(self, split):
        return torch.arange(90.0).view(30, 3).sin()

    def loss(self, model, batch):
        return (model(batch) - 3).square().sum(), len(batch)
"""
FLAGS = (
    *("--device", "cpu", "--task", "task.py:Line", "--global-batch", str(BATCH), "--lr", "0.01"),
    *("--schedule", "constant", "--warmup", "0", "--weight-decay", "0", "--clip", "0"),
    *("--steps", str(STEPS), "--eval-every", "0", "--log-every", "1", "--out", "here"),
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("unused", "the first batch gave no gradient to two.weight, two.bias; freeze what"),
        ("none", "model() has no parameter that learns: all of them are frozen, or there"),
        ("complex", "the parameter phase is complex, which neither AdamW's kernel nor the"),
    ],
)
@pytest.mark.parametrize(("world", "loaders"), [(2, 0), (1, 2), (3, 2)])
def test_what_cannot_learn_is_named(
    cwd: Path, kind: str, said: str, world: int, loaders: int
) -> None:
    if world == 1 and kind == "unused":
        pytest.skip("one rank waits for no gradient: it trains on, see below")
    ranks = run(world, *FLAGS, "--kind", kind, "--loader-workers", str(loaders), cwd=cwd)
    assert [rank.status for rank in ranks] == [2] * world, ranks
    assert ranks[0].err.startswith(f"train: error: {said}")
    assert [rank.err.count("\n") for rank in ranks] == [1] + [0] * (world - 1)


@pytest.mark.full
def test_one_rank_trains_on_and_says_what_it_did_not_use(cwd: Path) -> None:
    (ended,) = complete(1, *FLAGS, "--kind", "unused", cwd=cwd)
    assert ended.out.count("in the first step: two.weight, two.bias\n") == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "world", "loaders", "flags"),
    [
        ("now and then", 2, 0, ("--find-unused",)),
        ("tied", 2, 0, ()),
        *(
            (kind, world, loaders, flags)
            for kind, flags in (
                ("now and then", ("--find-unused",)),
                ("unused", ("--find-unused",)),
                ("tied", ()),
                ("frozen", ()),
            )
            for world, loaders in ((1, 0), (3, 0), (3, 2))
        ),
    ],
)
def test_the_rest_learns_as_torch_has_it(
    cwd: Path, kind: str, world: int, loaders: int, flags: tuple[str, ...]
) -> None:
    more = ("--kind", kind, "--loader-workers", str(loaders))
    first, *_ = complete(world, *FLAGS, *flags, *more, cwd=cwd)
    assert ("8 parameters, 4 of them frozen\n" in first.out) == (kind == "frozen")
    saved = torch.load(cwd / "here" / f"step-{STEPS:08}" / "weights.pt", weights_only=True)
    names: dict[str, type[nn.Module]] = {}
    exec(TASK, names)
    torch.manual_seed(0)
    model = names["Net"](kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0)
    samples = torch.arange(90.0).view(30, 3).sin()
    for step in range(STEPS):
        # Each rank decides on its own share of the batch whether it uses the second layer.
        losses = []
        for rank in range(world):
            order = Order(Shuffled(30, 0), BATCH, 1, rank, world)
            batch = samples[order.batch(step * BATCH, 0).indices]
            losses.append((model(batch) - 3).square().sum())
        torch.autograd.backward(torch.stack(losses).sum() / BATCH)
        optimizer.step()
        optimizer.zero_grad()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(saved[name], weight, rtol=1e-4, atol=1e-6)


@pytest.mark.full
def test_a_parameter_that_is_used_now_and_then_needs_the_flag(cwd: Path) -> None:
    ranks = run(2, *FLAGS, "--steps", "60", "--kind", "now and then", cwd=cwd)
    assert all(rank.status for rank in ranks)
    assert any("--find-unused" in rank.err for rank in ranks), ranks


@pytest.mark.full
def test_a_parameter_that_the_last_step_leaves_out_is_named(cwd: Path) -> None:
    ranks = run(2, *FLAGS, "--kind", "not at last", cwd=cwd, STEPS=str(STEPS))
    assert [rank.status for rank in ranks] == [2, 2], ranks
    said = "this step gave no gradient to two.weight, two.bias, and the first one did; type --find"
    assert said in ranks[0].err
    assert not (cwd / "here" / f"step-{STEPS:08}").exists()


@pytest.mark.full
def test_another_model_is_not_resumed_and_batches_are_not_synchronised_on_a_cpu(cwd: Path) -> None:
    complete(1, *FLAGS, "--kind", "frozen", cwd=cwd)
    flags = ("--resume", "auto", "--steps", "9")
    (ended,) = run(1, *FLAGS, *flags, "--kind", "tied", cwd=cwd)
    assert ended.status == 2
    assert ended.err.startswith("train: error: here/step-00000005 is of another model")
    assert ended.err.count("\n") == 1
    (ended,) = run(1, *FLAGS, "--overwrite", "--kind", "tied", "--sync-bn", cwd=cwd)
    assert ended.status == 2
    assert ended.err.startswith("train: error: --sync-bn needs GPUs: ")
