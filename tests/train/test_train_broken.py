"""What a run says and leaves behind when its numbers, its code or a disk fail."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train.config import Config
from spawnlaunch.train.order import Order, Shuffled
from tests.support.late import Late
from tests.train.ranks import assert_refused, history, run, text_of

torch = Late("torch")
pytestmark = pytest.mark.full

TASK = text_of("spoilt")
FLAGS = (
    *("--device", "cpu", "--steps", "6", "--global-batch", "6", "--accumulate", "2"),
    *("--log-every", "1", "--eval-every", "0", "--save-every", "1", "--keep", "9", "--out", "here"),
)


def saved(cwd: Path) -> list[str]:
    """The checkpoints of a run."""
    return sorted(path.name for path in (cwd / "here").glob("step-*"))


def test_a_loss_that_is_no_number_stops_with_rank_step_and_samples(cwd: Path) -> None:
    errors = {"TORCHELASTIC_ERROR_FILE": str(cwd / "error.json")}
    ranks = run(2, *FLAGS, "--task", "task.py:Nan", cwd=cwd, **errors)
    order = Order(Shuffled(24, 0), global_batch=6, accumulate=2, rank=1, world_size=2)
    samples = ", ".join(map(str, [*order.batch(2 * 6, 0).indices, *order.batch(2 * 6, 1).indices]))
    said = r"rank 1: the loss of step 3 is nan, on the training samples [\d, ]+; look at them, "
    assert_refused(ranks, "rank 1: the loss of step 3 is nan, on the training samples ", 1)
    (named,) = re.findall(r"training samples ([\d, ]+);", ranks[0].err)
    assert named in samples
    assert [line["step"] for line in history(cwd / "here")] == [1, 2]
    assert saved(cwd) == ["step-00000001", "step-00000002"]
    message = json.loads((cwd / "error.json").read_text())["message"]
    assert re.search(said, message["message"])
    assert "Traceback" not in message["extraInfo"]["py_callstack"]


@pytest.mark.parametrize(("world", "task"), [(1, "Infinite"), (2, "InfiniteOwn")])
def test_a_gradient_that_is_not_finite_ends_the_run_before_it_is_saved(
    cwd: Path, world: int, task: str
) -> None:
    ranks = run(world, *FLAGS, "--task", f"task.py:{task}", cwd=cwd)
    assert_refused(ranks, "the norm of the gradient of step 3 is ", 1)
    assert re.search(r"step 3 is (nan|inf), and its loss is fin", ranks[0].err)
    assert saved(cwd) == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_changes_no_weight(value: float) -> None:
    from spawnlaunch.train.distributed import World
    from spawnlaunch.train.task import Task
    from spawnlaunch.train.trainer import Trainer

    class Sum(Task):
        def model(self) -> Any:
            return torch.nn.Linear(2, 1)

        def loss(self, model: Any, batch: Any) -> Any:
            return model(batch).sum(), len(batch)

    trainer = Trainer(Sum(), Config(device="cpu"), World(), torch.device("cpu"), 1.0)
    trainer.train_step(iter([torch.ones(2, 2)]), wants_stop=False)
    before, _ = trainer.state()
    batch = torch.tensor([[1.0, value], [1.0, 1.0]])
    found = trainer.train_step(iter([batch]), wants_stop=False)
    assert not found.totals.isfinite().all()
    after, rest = trainer.state()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {int(one["step"]) for one in rest["optimizer"]["state"].values()} == {1}


def test_a_rank_that_raises_shows_its_traceback_and_files_it_as_torch_does(cwd: Path) -> None:
    flags = (*FLAGS, "--task", "task.py:Raises", "--save-every", "0")
    ranks = run(2, *flags, cwd=cwd)
    # The other rank was in a collective, lost its peer, and left as well.
    assert [rank.status for rank in ranks] == [1, 1]
    said = ranks[1].err
    assert said.startswith("Traceback (most recent call last):\n")
    assert re.search(r'task.py", line \d+, in spoilt\n    broken_by_the_user\(\)', said)
    assert said.endswith("ValueError: the user's own mistake\n")
    kept = sorted(path.name for path in (cwd / "here").iterdir())
    assert kept == ["config.toml", "lock", "metrics.jsonl"]
    file = cwd / "error.json"
    (alone,) = run(1, *flags, "--overwrite", cwd=cwd, TORCHELASTIC_ERROR_FILE=str(file))
    message = json.loads(file.read_text())["message"]
    assert message["message"] == "ValueError: the user's own mistake"
    assert message["extraInfo"]["py_callstack"] == alone.err
    assert re.fullmatch(r"\d{10}", message["extraInfo"]["timestamp"])


def test_a_disk_that_is_full_ends_the_run(cwd: Path) -> None:
    (ended,) = run(0, *FLAGS, "--task", "task.py:FullDisk", cwd=cwd)
    assert (ended.status, ended.err) == (
        1,
        "train: error: cannot write the checkpoint of step 1 to here: File too large; look at the "
        "file system, or go on elsewhere with --resume and --out\n",
    )
    assert saved(cwd) in ([], ["step-00000001.part"])
