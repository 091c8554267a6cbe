"""Evaluation without training, before the first step, and of splits, as scikit-learn has it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.late import Late
from tests.train.ranks import assert_refused, complete, metrics, run, text_of

reference = Late("sklearn.metrics")
torch = Late("torch")
pytestmark = pytest.mark.full
COUNTS = {"train": 50, "validation": 17, "test": 23}
TASK = text_of("sides")
FLAGS = (
    *("--device", "cpu", "--task", "sides.py:Sides", "--global-batch", "12", "--lr", "0.05"),
    *("--eval-batch-size", "4"),
)
SPLITS = ("--eval-splits", "train,validation,test")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve steps, with a validation before the first and after each six."""
    cwd = tmp_path_factory.mktemp("splits")
    (cwd / "sides.py").write_text(TASK)
    more = ("--steps", "12", "--eval-every", "6", "--eval-at-start", "--out", "here")
    complete(2, *FLAGS, *SPLITS, *more, cwd=cwd)
    return cwd


def expected(weights: Path, split: str) -> dict[str, float]:
    """Loss and accuracy of saved weights, by scikit-learn."""
    names: dict[str, Any] = {}
    exec(TASK, names)
    model = torch.nn.Linear(4, 3)
    model.load_state_dict(torch.load(weights, weights_only=True))
    x, y = names["rows"](split)
    logits = model(x).detach().double()
    truth, taken = y.numpy(), logits.argmax(dim=1).numpy()
    chances = np.asarray(torch.softmax(logits, dim=1))
    found = {"loss": reference.log_loss(truth, chances, labels=[0, 1, 2])}
    found["accuracy"] = reference.accuracy_score(truth, taken)
    return found


def agrees(out: Path, weights: Path, of: dict[str, Any]) -> None:
    told = json.loads((out / "evaluation.json").read_text())
    assert {name: told[name] for name in told if name not in COUNTS} == of
    for split in COUNTS:
        wanted = expected(weights, split)
        assert {name: told[split][name] for name in wanted} == pytest.approx(wanted, rel=1e-5)


def test_a_run_ends_with_the_scores_of_each_split(trained: Path) -> None:
    agrees(trained / "here", trained / "here" / "step-00000012" / "weights.pt", {"step": 12})
    torch.manual_seed(0)
    torch.save(torch.nn.Linear(4, 3).state_dict(), trained / "begin.pt")
    first, *later = metrics(trained / "here", "validation_loss")
    assert len(later) == 2
    assert first == pytest.approx(expected(trained / "begin.pt", "validation")["loss"], rel=1e-5)


def test_weights_are_evaluated_without_training(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "evaluated"
    flags = ("--eval-only", "--init", "here", "--loader-workers", "2", "--out", str(out))
    first, *_ = complete(3, *FLAGS, *SPLITS, *flags, cwd=trained)
    agrees(out, trained / "here" / "step-00000012" / "weights.pt", {"weights": "here"})
    assert first.out.count("class   precision  recall     F1  samples\n") == 3
    assert "\ntest: loss " in first.out
    assert "step " not in first.out
    assert not list(out.glob("step-*"))


def test_an_evaluation_leaves_the_run_as_it_is(trained: Path) -> None:
    def files() -> dict[str, bytes]:
        found = [path for path in (trained / "here").rglob("*") if path.is_file()]
        return {str(p): p.read_bytes() for p in found if p.name not in ("lock", "evaluation.json")}

    before = files()
    flags = ("--eval-only", "--resume", "auto", "--out", "here")
    complete(1, *FLAGS, *SPLITS, *flags, cwd=trained)
    assert files() == before
    agrees(trained / "here", trained / "here" / "step-00000012" / "weights.pt", {"step": 12})
    ended = run(1, *FLAGS, "--eval-only", "--out", "nothing", cwd=trained)
    assert_refused(ended, "--eval-only evaluates trained weights")
