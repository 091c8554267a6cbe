"""Results do not depend on how many ranks share the work, and are those of a plain loop."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spawnlaunch.train.order import Order, Shuffled
from tests.support.late import Late
from tests.train.ranks import SMALL, complete, metrics, text_of, weights

torch = Late("torch")
language = Late("spawnlaunch.train.tasks.language")

STEPS, BATCH, SAMPLES, HELD_OUT, LR, CLIP = 8, 7, 30, 11, 0.02, 0.7
TASK = text_of("terms")
CONSTANT = ("--schedule", "constant", "--betas", "0.8,0.9", "--weight-decay", "0.3")
LINEAR = ("--schedule", "linear", "--final-lr", "0.004", "--warmup", "3")
# The learning rate of each step, as a share of --lr; by default a seventh of 8 steps warms up.
CONSTANT_SHARES = STEPS * [1.0]
LINEAR_SHARES = [min(k / 3, 0.2 + 0.8 * (STEPS - k) / (STEPS - 3)) for k in range(1, STEPS + 1)]


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
    assert (", 16 of them frozen\n" in first.out) == (row.kind == "frozen")


GLOBAL_BATCH, LANGUAGE_STEPS = 12, 15
FLAGS = (*SMALL, "--steps", f"{LANGUAGE_STEPS}", "--log-every", "1", "--warmup", "5", "--seed", "7")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled task, trained by three ranks."""
    cwd = tmp_path_factory.mktemp("exact")
    complete(3, *FLAGS, "--global-batch", str(GLOBAL_BATCH), "--out", "here", cwd=cwd)
    return cwd / "here"


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
