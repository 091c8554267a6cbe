"""The classify task: its scores are scikit-learn's, on any number of ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.late import Late
from tests.train.ranks import complete, metrics, weights

reference = Late("sklearn.metrics")
torch = Late("torch")
scores = Late("spawnlaunch.train.tasks.scores")
classify = Late("spawnlaunch.train.tasks.classify")
pytestmark = pytest.mark.full
FLAGS = (
    *("--device", "cpu", "--task", "classify", "--window", "600", "--width", "8", "--files", "40"),
)
STEPS = 30
LAST = f"step-{STEPS:08}"
NAMES = ["a", "b", "c", "d"]
labels = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60)


def agree(ours: dict[str, float], truth: Any, taken: Any, names: list[str]) -> None:
    """Every number equals scikit-learn's."""
    every = list(range(len(names)))
    assert ours["accuracy"] == pytest.approx(reference.accuracy_score(truth, taken))
    for average in ("macro", "weighted"):
        wanted = reference.precision_recall_fscore_support(
            truth, taken, average=average, zero_division=0
        )
        found = [ours[f"{average}_{name}"] for name in ("precision", "recall", "f1")]
        assert found == pytest.approx(wanted[:3])
    wanted = reference.precision_recall_fscore_support(truth, taken, labels=every, zero_division=0)
    for name, values in zip(("precision", "recall", "f1"), wanted, strict=False):
        assert [ours[f"{name}/{label}"] for label in names] == pytest.approx(list(values))


@given(labels)
def test_scores_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    truth, taken = map(torch.tensor, zip(*pairs, strict=True))
    matrix = scores.confusion(truth, taken, 4)
    assert matrix.tolist() == reference.confusion_matrix(truth, taken, labels=range(4)).tolist()
    agree(scores.report(matrix, NAMES), truth, taken, NAMES)


def test_a_table_has_a_line_for_each_class() -> None:
    matrix = torch.tensor([[8, 2], [0, 0]])
    said = scores.show(matrix, ["left", "right"])
    assert said.splitlines() == [
        "class  precision  recall     F1  samples",
        "left       1.000   0.800  0.889       10",
        "right      0.000   0.000  0.000        0",
        "",
        "       a row: what a class was taken for, in the order of the rows",
        "left     8   2",
        "right    0   0",
    ]


def test_a_file_is_trained_on_or_held_out() -> None:
    task = classify.Classify(window=600)
    assert len(task.packages) > 5
    train, held_out = task.splits["train"], task.splits["validation"]
    assert 2 < len(train) / len(held_out) < 2 * classify.HELD_OUT
    assert set(held_out.labels.tolist()) == set(range(len(task.packages)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cwd = tmp_path_factory.mktemp("classify")
    complete(0, *FLAGS, "--steps", str(STEPS), "--eval-every", "0", "--out", "run", cwd=cwd)
    return cwd / "run"


def test_any_number_of_ranks_and_scikit_learn_measure_the_same(trained: Path) -> None:
    worlds, lines = (1, 3), []
    task = classify.Classify(window=600, width=8, files=40)
    held_out = task.dataset("validation")
    uneven = next(b for b in range(7, 99) if all(len(held_out) % (b * n) for n in worlds))
    for world in worlds:
        # A complete run is validated again, whoever trained it.
        flags = ("--steps", str(STEPS), "--resume", str(trained / LAST), "--out", f"on{world}")
        first, *_ = complete(
            world, *FLAGS, *flags, "--eval-batch-size", str(uneven), cwd=trained.parent
        )
        loss = metrics(trained.parent / f"on{world}", "validation_loss")
        lines.append((loss, first.out[first.out.index("class ") : first.out.index("\nvalidation")]))
    model = task.model().eval()
    model.load_state_dict(weights(trained, STEPS))
    with torch.no_grad():
        logits = torch.cat([model(held_out[i][0][None]) for i in range(len(held_out))])
    truth, taken = held_out.labels.numpy(), logits.argmax(dim=1).numpy()
    matrix = torch.from_numpy(
        reference.confusion_matrix(truth, taken, labels=range(len(task.packages)))
    )
    agree(scores.report(matrix, list(task.packages)), truth, taken, list(task.packages))
    chances = np.exp(torch.log_softmax(logits.double(), dim=1).numpy())
    loss = reference.log_loss(truth, chances, labels=range(len(task.packages)))
    for (found,), table in lines:
        assert found == pytest.approx(loss, abs=1e-6)
        assert table == scores.show(matrix, list(task.packages))
