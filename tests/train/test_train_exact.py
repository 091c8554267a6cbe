"""Results do not depend on how many ranks share the work, and are those of a plain loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spawnlaunch.train.order import Order, Shuffled
from tests.support.late import Late
from tests.train.ranks import SMALL, TEXT, complete, metrics, weights

torch = Late("torch")
language = Late("spawnlaunch.train.tasks.language")

STEPS, BATCH, SAMPLES, HELD_OUT, LR, CLIP = 8, 7, 30, 11, 0.02, 0.7
TASK = """
import dataclasses
import torch
from torch import nn


@dataclasses.dataclass(frozen=True, slots=True)
class Record:  # neither a tensor nor a container
    x: torch.Tensor
    terms: torch.Tensor
    names: list


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.one, self.two, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 1)
        if kind == "tied":
            self.two.weight = self.one.weight
        if kind == "frozen":
            self.two.requires_grad_(False)

    def forward(self, x):
        # The first global batch has samples on both sides.
        unused = self.kind == "sometimes" and self.training and not (x[:, 0] > 0.9).any()
        if unused or self.kind == "unused":
            return self.head(torch.tanh(self.one(x)))[:, 0]
        return self.head(torch.tanh(self.one(x) + self.two(x)))[:, 0]


class Terms:
    # A sample counts as often as it has terms, so that shares of as many samples count differently.
    def __init__(self, kind: str = "plain"):
        self.kind = kind

    def model(self):
        return Net(self.kind) if self.kind == "single" else Net(self.kind).double()

    def dataset(self, split):
        class Rows:  # no other process knows this class by name
            def __len__(self):
                return 30 if split == "train" else 11

            def __getitem__(self, index):
                x = torch.arange(3 * index, 3 * index + 3, dtype=torch.float64).sin()
                return x.float() if self.single else x, 1 + index % 4, f"row {index}"

        Rows.single = self.kind == "single"
        return Rows()

    def collate(self, samples):
        x, terms, names = zip(*samples)
        return Record(torch.stack(x), torch.tensor(terms), list(names))

    def loss(self, model, batch):
        assert type(batch) is Record and len(batch.names) == len(batch.x)
        squares = (5 * model(batch.x) - 3).square()
        return (batch.terms * squares).sum(), batch.terms.sum()


class InPieces(Terms):
    # Several forward passes, of which the first is by the parts of the model.
    def loss(self, model, batch):
        out = [model.head(torch.tanh(model.one(batch.x[:1]) + model.two(batch.x[:1])))[:, 0]]
        out += [model(x[None]) for x in batch.x[1:]]
        return (batch.terms * (5 * torch.cat(out) - 3).square()).sum(), batch.terms.sum()


class Grouped(Terms):
    # Two groups with rates of their own. The gradients of the rest are neither used nor clipped.
    def optimizer(self, model, lr):
        groups = [{"params": [model.head.weight]}, {"params": [model.head.bias], "lr": lr / 4}]
        return torch.optim.SGD(groups, lr=3 * lr, momentum=0.9)
"""
CONSTANT = ("--schedule", "constant", "--betas", "0.8,0.9", "--weight-decay", "0.3")
LINEAR = ("--schedule", "linear", "--final-lr", "0.004", "--warmup", "3")
# The learning rate of each step, as a share of --lr; by default a seventh of 8 steps warms up.
CONSTANT_SHARES = [1 / 2, *((STEPS - 1) * [1.0])]
LINEAR_SHARES = [min(1, k / 4) * (0.2 + 0.8 * (1 - k / STEPS)) for k in range(1, STEPS + 1)]


class Row(NamedTuple):
    """A run: its task and model, and how its ranks share the steps."""

    task: str
    kind: str = "plain"
    world: int = 2
    accumulate: int = 1
    loaders: int = 0
    clip: float = CLIP
    more: tuple[str, ...] = ()


class Learned(NamedTuple):
    """What came of all steps."""

    weights: dict[str, Any]
    losses: list[float]
    norms: list[float]
    validation: float


ROWS = [
    Row("Terms", accumulate=2),
    Row("Grouped", world=3),
    *(
        pytest.param(row, marks=pytest.mark.full)
        for row in (
            Row("Terms", world=1, accumulate=3, loaders=2, clip=0.0),
            Row("Terms", world=3, loaders=2),
            Row("Grouped", world=2, accumulate=2, clip=0.0),
            Row("Terms", "single", world=2, accumulate=2),
            Row("Terms", "single", world=3, more=("--bucket-mb", "1")),
            Row("Terms", "tied"),
            Row("Terms", "frozen", world=3),
            Row("Terms", "unused", world=1),
            Row("Terms", "unused", more=("--find-unused",)),
            Row("Terms", "sometimes", world=3, more=("--find-unused",)),
            Row("InPieces", world=3),
        )
    ),
]


def batches(row: Row, step: int) -> list[list[int]]:
    """The samples of a step: of all ranks together, or of each where the model looks at that."""
    worlds = row.world if row.kind == "sometimes" else 1
    orders = [Order(Shuffled(SAMPLES, 0), BATCH, 1, rank, worlds) for rank in range(worlds)]
    return [list(order.batch(step * BATCH, 0).indices) for order in orders]


def by_hand(row: Row, shares: Sequence[float]) -> Learned:
    """A loop that knows of no ranks: the gradient of the mean over all terms of a step."""
    names: dict[str, Any] = {}
    exec(TASK, names)
    task = names["Terms"](row.kind)
    torch.manual_seed(0)
    model = task.model()
    if row.task == "Grouped":
        optimizer = names["Grouped"]().optimizer(model, LR)
    else:
        matrices = [p for p in model.parameters() if p.dim() == 2]
        rest = [p for p in model.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": 0.3}, {"params": rest, "weight_decay": 0}]
        optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.8, 0.9))
    rates = [group["lr"] for group in optimizer.param_groups]

    def mean(split: str, parts: list[list[int]]) -> Any:
        samples = task.dataset(split)
        sums = [task.loss(model, task.collate([samples[i] for i in part])) for part in parts]
        return sum(loss for loss, _ in sums) / sum(int(count) for _, count in sums)

    losses, norms = [], []
    for step, share in enumerate(shares):
        loss = mean("train", batches(row, step))
        torch.autograd.backward(loss)
        clipped = [p for group in optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(clipped, row.clip or float("inf"))
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * share
        optimizer.step()
        model.zero_grad()
        losses.append(loss.item())
        norms.append(float(norm))
    model.eval()
    with torch.no_grad():
        validation = float(mean("validation", [list(range(HELD_OUT))]))
    return Learned(model.state_dict(), losses, norms, validation)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row[:6])))
def test_a_run_computes_what_a_plain_loop_in_one_process_does(tmp_path: Path, row: Row) -> None:
    (tmp_path / "task.py").write_text(TASK)
    is_grouped = row.task == "Grouped"
    flags = (
        *("--device", "cpu", "--task", f"task.py:{row.task}", "--kind", row.kind, "--out", "here"),
        *("--steps", f"{STEPS}", "--lr", f"{LR}", "--clip", f"{row.clip}", "--log-every", "1"),
        *("--global-batch", f"{BATCH}", "--accumulate", f"{row.accumulate}"),
        *("--eval-batch-size", "2", "--loader-workers", f"{row.loaders}", *row.more),
    )
    first, *_ = complete(row.world, *flags, *(LINEAR if is_grouped else CONSTANT), cwd=tmp_path)
    shares = LINEAR_SHARES if is_grouped else CONSTANT_SHARES
    expected, out = by_hand(row, shares), tmp_path / "here"
    rel, abs_ = (1e-4, 1e-6) if row.kind == "single" else (1e-12, 1e-13)
    saved = weights(out, STEPS)
    assert saved.keys() == expected.weights.keys()
    for name, weight in saved.items():
        torch.testing.assert_close(weight, expected.weights[name], rtol=rel, atol=abs_)
    close = 1e-4 if row.kind == "single" else 1e-9
    assert metrics(out, "loss") == pytest.approx(expected.losses, rel=close)
    assert metrics(out, "gradient_norm") == pytest.approx(expected.norms, rel=close)
    assert metrics(out, "validation_loss") == pytest.approx([expected.validation], rel=close)
    assert metrics(out, "lr") == pytest.approx([LR * (3 if is_grouped else 1) * s for s in shares])
    unused = "in the first step: two.weight, two.bias\n" in first.out
    assert unused == (row.kind == "unused" and row.world == 1)
    assert (", 16 of them frozen\n" in first.out) == (row.kind == "frozen")


GLOBAL_BATCH, LANGUAGE_STEPS = 12, 15
FLAGS = (*SMALL, "--steps", f"{LANGUAGE_STEPS}", "--log-every", "1", "--warmup", "5", "--seed", "7")


def uneven_context() -> int:
    """A context whose validation windows neither 2 nor 3 ranks can share evenly."""
    held_out = len(language.Language(1, 1, 32, TEXT).texts["validation"])
    return next(c for c in range(40, 400) if -((1 - held_out) // c) % 6 in (1, 5))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled task, trained by three ranks."""
    cwd = tmp_path_factory.mktemp("exact")
    flags = ("--global-batch", str(GLOBAL_BATCH), "--context", str(uneven_context()))
    complete(3, *FLAGS, *flags, "--out", "here", cwd=cwd)
    return cwd / "here"


@pytest.mark.full
def test_the_validation_loss_is_that_of_the_saved_weights(trained: Path) -> None:
    """One window after the other, one byte counted after the other, in double precision."""
    saved = trained / f"step-{LANGUAGE_STEPS:08}"
    progress = torch.load(saved / "training.pt", weights_only=True)["progress"]
    task = language.Language(uneven_context(), layers=1, width=32, text=TEXT)
    model, bits = task.model(), []
    model.load_state_dict(weights(trained, LANGUAGE_STEPS))
    text = task.texts["validation"].long()
    for start in range(0, len(text) - 1, task.context):
        piece = text[start : start + task.context + 1]
        with torch.no_grad():
            chances = torch.log_softmax(model(piece[None, :-1])[0].double(), dim=-1)
        bits.append(-chances.gather(1, piece[1:, None]).flatten() / torch.log(torch.tensor(2.0)))
    assert len(bits) % 2 == 1
    assert len(bits) % 3 != 0
    every = torch.cat(bits)
    assert len(every) == len(text) - 1
    assert float(every.mean()) == pytest.approx(progress["loss"], rel=1e-6)
    assert [progress["loss"]] == metrics(trained, "validation_loss")


@pytest.mark.full
def test_a_checkpoint_says_what_it_is(trained: Path) -> None:
    losses, last = metrics(trained, "loss"), f"step-{LANGUAGE_STEPS:08}"
    assert losses[-1] < losses[0] - 1
    saved = torch.load(trained / last / "training.pt", weights_only=True)
    assert saved["identity"]["task"] == "language"
    assert "sha256" in saved["identity"]["data"]
    assert saved["world_size"] == len(saved["rng"]) == 3
    assert saved["progress"]["step"] == saved["config"]["steps"] == LANGUAGE_STEPS
    assert saved["progress"]["samples"] == LANGUAGE_STEPS * GLOBAL_BATCH
    kept = ["best", "config.toml", "evaluation.json", "lock", "metrics.jsonl", last]
    assert sorted(path.name for path in trained.iterdir()) == kept
