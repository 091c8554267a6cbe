"""The classify task: its scores are scikit-learn's, on any number of ranks."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.late import Late
from tests.train.ranks import complete, metrics

reference = Late("sklearn.metrics")
torch = Late("torch")
scores = Late("spawnlaunch.train.tasks.scores")
classify = Late("spawnlaunch.train.tasks.classify")
pytestmark = pytest.mark.full
FLAGS = (
    *("--device", "cpu", "--task", "classify", "--window", "600", "--width", "8", "--files", "40"),
)
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


def test_it_learns_on_two_ranks(tmp_path: Path) -> None:
    """Its loss and scores on any number of ranks are in test_train_splits.py."""
    first, _ = complete(
        2, *FLAGS, "--steps", "30", "--log-every", "1", "--out", "run", cwd=tmp_path
    )
    losses = metrics(tmp_path / "run", "loss")
    assert losses[-1] < losses[0] - 0.2
    assert "\nclass " in first.out
