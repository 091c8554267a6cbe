"""What tasks do without meaning to: it is right, or refused by name before a wrong weight is saved.

Samples that differ between ranks or runs, parameters and buffers that change, state of a task.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.late import Late
from tests.train.ranks import assert_refused, complete, metrics, run, text_of, weights

torch = Late("torch")

TASK = text_of("careless")
FLAGS = (
    *("--device", "cpu", "--steps", "8", "--global-batch", "6", "--log-every", "1"),
    *("--eval-every", "0", "--save-every", "4", "--eval-batch-size", "3", "--out", "here"),
    *("--warmup", "0", "--schedule", "constant"),
)


def task(name: str) -> tuple[str, str]:
    return "--task", f"task.py:{name}"


DIFFERENT = [
    ("Sharded", (), "the ranks disagree on sample 0 of the data set 'train': rank 0 has"),
    ("Objects", (), "the ranks disagree on sample 0 of the data set 'validation': rank 0"),
    (
        "ShardedTest",
        ("--eval-splits", "validation,test"),
        "the ranks disagree on sample 0 of the data set 'test': rank 0 has ",
    ),
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "flags", "said"), DIFFERENT, ids=[row[0] for row in DIFFERENT])
def test_samples_that_differ_between_ranks_are_refused(
    cwd: Path, name: str, flags: tuple[str, ...], said: str
) -> None:
    ended = run(2, *FLAGS, *task(name), *flags, cwd=cwd)
    assert_refused(ended, said)
    assert "sort what comes from a set or a directory" in ended[0].err


@pytest.mark.full
def test_labels_that_follow_the_order_of_a_set_are_refused_when_it_is_another(cwd: Path) -> None:

    complete(1, *FLAGS, *task("Hashed"), cwd=cwd)
    seeds = (str(seed) for seed in range(3))
    more = (*FLAGS, *task("Hashed"), "--resume", "auto", "--steps", "8")
    said = [run(1, *more, cwd=cwd, cold=True, PYTHONHASHSEED=seed)[0] for seed in seeds]
    assert {one.status for one in said} <= {0, 2}
    assert any("is another one than it was" in one.err for one in said)


@pytest.mark.full
def test_random_numbers_are_no_difference(cwd: Path) -> None:
    complete(2, *FLAGS, *task("Random"), cwd=cwd)
    complete(3, *FLAGS, *task("Random"), "--resume", "auto", "--steps", "10", cwd=cwd)


@pytest.mark.full
@pytest.mark.parametrize(
    ("more", "environ", "said"),
    [
        (("--rows", "120"), {}, "it had 100 samples of 'train', and now there are 120; give it"),
        ((), {"OTHER": "train"}, "sample 0 of 'train' is another one than it was; give it"),
        ((), {"OTHER": "validation"}, "sample 0 of 'validation' is another one than it was"),
    ],
)
def test_a_run_goes_on_with_the_samples_that_it_had(
    cwd: Path, more: tuple[str, ...], environ: dict[str, str], said: str
) -> None:
    complete(2, *FLAGS, *task("Rows"), cwd=cwd)
    flags = (*FLAGS, *task("Rows"), "--resume", "auto", "--steps", "12", *more)
    ended = run(1, *flags, cwd=cwd, **environ)
    assert_refused(ended, f"here/step-00000008 is of a run with other samples: {said}")


@pytest.mark.full
@pytest.mark.parametrize(("name", "world"), [("Thaw", 2), ("Freeze", 1)])
def test_a_parameter_that_is_thawed_or_frozen_ends_the_run(
    cwd: Path, name: str, world: int
) -> None:
    ended = run(world, *FLAGS, *task(name), "--save-every", "1", "--keep", "9", cwd=cwd)
    assert_refused(ended, "requires_grad of 0.weight, 0.bias has changed in the run", 1)
    steps = sorted(path.name for path in (cwd / "here").glob("step-*"))
    assert steps == [f"step-{step:08}" for step in range(1, len(steps) + 1)]
    assert len(steps) < 5


@pytest.mark.full
@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_buffer_is_trained_with_by_one_rank_and_refused_by_more(
    cwd: Path, layout: str
) -> None:
    flags = (*FLAGS, *task("Sparse"), "--layout", layout)
    complete(1, *flags, cwd=cwd)
    complete(1, *flags, "--resume", "auto", "--steps", "9", cwd=cwd)
    assert weights(cwd / "here", 9)["matrix"].to_dense().tolist() == [[1.0]]
    ended = run(2, *flags, "--overwrite", cwd=cwd)
    assert [one.status for one in ended] == [2, 2]  # torch warns of csr itself, before our line
    assert "train: error: the buffer matrix is sparse, which several ranks" in ended[0].err


@pytest.mark.full
@pytest.mark.parametrize(
    ("world", "flags"),
    [
        *((world, ("--at", at)) for world in (1, 2) for at in ("1", "8", "15")),
        (2, ("--at", "8", "--no-saved")),
        (3, ("--at", "9")),
    ],
)
def test_a_buffer_of_another_shape_ends_the_run_before_it_is_saved(
    cwd: Path, world: int, flags: tuple[str, ...]
) -> None:
    ended = run(world, *FLAGS, *task("Grow"), *flags, cwd=cwd)
    said = "mask of the model has changed in the run: it was (2,) torch.float32 and is (4,) tor"
    assert_refused(ended, said, 1)
    assert not (cwd / "here" / "step-00000008").exists()


@pytest.mark.full
def test_what_a_task_counts_goes_on(cwd: Path) -> None:
    complete(2, *FLAGS, *task("Counts"), "--out", "whole", cwd=cwd)
    complete(2, *FLAGS, *task("Counts"), "--steps", "4", cwd=cwd)
    complete(2, *FLAGS, *task("Counts"), "--resume", "auto", cwd=cwd)
    whole, gone_on = (metrics(cwd / name, "loss")[-4:] for name in ("whole", "here"))
    assert gone_on == pytest.approx(whole, rel=1e-6)
    saved: Any = torch.load(cwd / "here/step-00000008/training.pt", weights_only=True)
    assert saved["task"]["seen"] == 8 * [3]


@pytest.mark.full
@pytest.mark.parametrize("world", [1, 3])
def test_a_rank_may_have_no_sample_that_can_be_read(cwd: Path, world: int) -> None:
    flags = (*FLAGS, "--eval-batch-size", "1")
    complete(world, *flags, *task("Gaps"), cwd=cwd)
    found = json.loads((cwd / "here" / "evaluation.json").read_text())
    assert found["validation"]["loss"] > 0
    ended = run(world, *flags, *task("NoGaps"), "--out", "none", cwd=cwd)
    assert_refused(ended, "the data set 'validation' gave no sample", 1)


@pytest.mark.full
def test_a_run_from_a_path_has_no_best_of_the_other(cwd: Path) -> None:
    flags = (*FLAGS, *task("Best"), "--lr", "0.05", "--eval-every", "5", "--save-every", "5")
    flags = (*flags, "--keep", "1", "--global-batch", "8")
    complete(1, *flags, "--steps", "40", "--out", "a", cwd=cwd)
    complete(1, *flags, "--steps", "50", "--resume", "a", "--out", "b", cwd=cwd)
    assert (cwd / "b" / "best").resolve() == cwd / "b" / "step-00000045"
    exported = float((cwd / "b" / "exported.txt").read_text())
    assert exported == pytest.approx(float(weights(cwd / "b", 45)["weight"]), abs=1e-5)
    more = ("--steps", "90", "--patience", "3", "--resume", "a/best", "--out", "c")
    complete(1, *flags, *more, cwd=cwd)
    assert len(metrics(cwd / "c", "validation_loss")) > 3
    before = (cwd / "a" / "best").resolve()
    complete(1, *flags, "--steps", "45", "--resume", "auto", "--out", "a", cwd=cwd)
    assert (cwd / "a" / "best").resolve() == before


@pytest.mark.full
def test_a_loss_that_comes_from_elsewhere_than_the_model_is_refused(cwd: Path) -> None:
    ended = run(1, *FLAGS, *task("NoGradient"), cwd=cwd)
    assert_refused(ended, "this step gave no gradient to any parameter; use the model")
