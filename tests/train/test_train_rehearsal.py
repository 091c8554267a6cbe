"""--dry-run tells what a run then is, and writes nothing; an epoch is when samples are used up."""

from pathlib import Path

import pytest

from tests.train.ranks import complete, history, weights

TASK = """
import torch


class Wide:
    defaults = {"batch_size": 5, "epochs": 3, "eval_every": "epoch", "save_every": "epoch"}

    def model(self):
        first, last = torch.nn.Linear(64, 256), torch.nn.Linear(256, 1)
        return torch.nn.Sequential(first, torch.nn.ReLU(), last)

    def dataset(self, split):
        return [{"x": torch.ones(64), "y": i} for i in range(33 if split == "train" else 9)]

    def prepare(self, directory):
        (directory / "made").write_text("")

    def prepared(self, directory):
        assert (directory / "made").exists()

    def loss(self, model, batch):
        return model(batch["x"]).square().sum(), len(batch["y"])
"""
FLAGS = ("--device", "cpu", "--task", "task.py:Wide")
STEPS = -(-3 * 33 // 10)


@pytest.mark.full
def test_a_dry_run_tells_what_the_run_then_is(cwd: Path) -> None:
    told, other = complete(2, *FLAGS, "--dry-run", cwd=cwd)
    assert [path.name for path in cwd.iterdir() if path.name != "__pycache__"] == ["task.py"]
    assert other.out == ""
    assert "a batch: x float32 (5, 64), y int64 (5,)\n" in told.out
    assert "16,897 parameters, in 4 tensors:\n  0.weight (256, 64)\n  0.bias (256,)\n" in told.out
    assert "MiB: " in told.out
    assert f"{STEPS} steps of 10 samples: " in told.out
    assert "validations, each of 9 samples:" in told.out


@pytest.mark.full
def test_an_epoch_is_over_in_the_step_that_begins_the_next_one(cwd: Path) -> None:
    flags = (*FLAGS, "--log-every", "1", "--keep", "99")
    complete(2, *flags, "--out", "epochs", cwd=cwd)
    # By a count of its own: the steps in which a sample of the next epoch is the last.
    ends = [s for s in range(1, STEPS + 1) if s * 10 // 33 > (s - 1) * 10 // 33]
    lines = [line["step"] for line in history(cwd / "epochs") if "validation_loss" in line]
    assert lines == sorted({*ends, STEPS})
    saved = sorted(int(path.name[5:]) for path in (cwd / "epochs").glob("step-*"))
    assert saved == lines
    # What is validated, and when, changes no weight.
    complete(2, *flags, "--eval-every", "1", "--save-every", "0", "--out", "steps", cwd=cwd)
    one, other = (weights(cwd / name, STEPS) for name in ("epochs", "steps"))
    assert all((one[key] == other[key]).all() for key in one)
