"""What a task has set up stays as it is, and is asked for no more often than needed."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.late import Late
from tests.train.ranks import complete, metrics, text_of, weights

torch = Late("torch")
pytestmark = pytest.mark.full

TASK = text_of("left_alone")
FLAGS = (
    *("--device", "cpu", "--global-batch", "6", "--log-every", "1", "--warmup", "0"),
    *("--eval-every", "2", "--save-every", "0", "--steps", "6", "--out", "here"),
)


def task(name: str) -> tuple[str, str]:
    return "--task", f"task.py:{name}"


def test_what_model_left_in_eval_mode_stays_in_it(cwd: Path) -> None:
    complete(2, *FLAGS, *task("Frozen"), cwd=cwd)
    saved = weights(cwd / "here", 6)
    assert torch.equal(saved["norm.running_mean"], torch.zeros(4))
    assert saved["norm.num_batches_tracked"] == 0
    # A model that is in it as a whole is trained.
    complete(1, *FLAGS, *task("Asleep"), "--overwrite", cwd=cwd)
    assert weights(cwd / "here", 6)["norm.num_batches_tracked"] == 6


def grown(tree: Any) -> Any:
    """Modules in the shape of a tree, each leaf in training mode or not."""
    if isinstance(tree, bool):
        return torch.nn.Linear(1, 1).train(tree)
    return torch.nn.Sequential(*map(grown, tree))


@settings(max_examples=50)
@given(st.recursive(st.booleans(), lambda inner: st.lists(inner, min_size=1, max_size=3)))
def test_each_module_keeps_its_mode_over_a_validation(tree: Any) -> None:
    from spawnlaunch.train.config import Config
    from spawnlaunch.train.distributed import World
    from spawnlaunch.train.task import Task
    from spawnlaunch.train.trainer import Trainer

    model = torch.nn.Sequential(grown(tree))
    before = [module.training for module in model.modules()]
    task = type("Tree", (Task,), {"model": lambda _: model})()
    trainer = Trainer(task, Config(), World(), torch.device("cpu"), 1.0)
    with suppress(KeyError), trainer.evaluating():
        assert not any(module.training for module in model.modules())
        raise KeyError
    assert [module.training for module in model.modules()] == before


def test_a_validation_sees_the_buffers_that_a_checkpoint_keeps(cwd: Path) -> None:
    """BatchNorm's, which each rank changes by samples of its own."""
    complete(2, *FLAGS, *task("Averaged"), "--eval-batch-size", "4", cwd=cwd)
    json.loads((cwd / "here" / "evaluation.json").read_text(), parse_constant=int)  # no NaN
    mean = float(weights(cwd / "here", 6)["norm.running_mean"].sum())
    assert metrics(cwd / "here", "mean")[-1] == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize(("kept", "last"), [("--kept", [6, 7]), ("--no-kept", [6, 12])])
def test_buffers_are_those_of_rank_0_if_a_checkpoint_holds_them(
    cwd: Path, kept: str, last: list[int]
) -> None:
    ranks = complete(2, *FLAGS, *task("Counts"), kept, cwd=cwd)
    seen = [[line for line in rank.out.splitlines() if line[:5] == "seen "] for rank in ranks]
    assert [int(lines[-1][5:]) for lines in seen] == last


def test_dataset_is_asked_once_for_each_split(cwd: Path) -> None:
    flags = ("--eval-splits", "train,validation,test", "--loader-workers", "1")
    complete(2, *FLAGS, *task("Base"), *flags, cwd=cwd)
    asked = sorted((cwd / "asked").read_text().splitlines())
    splits = ("test", "train", "validation")
    assert asked == [f"{rank} {split}" for rank in range(2) for split in splits]


def test_a_checkpoint_is_not_mapped_any_more_once_it_is_read(cwd: Path) -> None:
    """What is mapped could not be removed on some network file systems."""
    complete(1, *FLAGS, *task("Mapped"), cwd=cwd)
    more = ("--steps", "8", "--resume", "auto")
    (ended,) = complete(1, *FLAGS, *task("Mapped"), *more, cwd=cwd)
    assert "resumed from step 6" in ended.out
    assert "mapped False" in ended.out
    assert "mapped True" not in ended.out
