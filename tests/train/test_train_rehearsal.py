"""--dry-run tells what a run then is, and writes nothing; an epoch is when samples are used up."""

import re
from pathlib import Path

import pytest
import torch

from tests.train.ranks import complete, history, metrics, run

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


class Ragged(Wide):
    def model(self):
        import os
        return torch.nn.Linear(64, 1 + int(os.environ["RANK"]))
"""
FLAGS = ("--device", "cpu", "--task", "wide.py:Wide")


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "wide.py").write_text(TASK)
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize(("world", "loaders"), [(2, 0), (1, 0), (1, 2), (3, 2)])
def test_a_dry_run_tells_what_the_run_then_is(cwd: Path, world: int, loaders: int) -> None:
    flags = (*FLAGS, "--loader-workers", str(loaders))
    before = sorted(path.name for path in cwd.iterdir())
    told, *others = complete(world, *flags, "--dry-run", cwd=cwd)
    assert sorted(path.name for path in cwd.iterdir()) == before
    assert [other.out for other in others] == [""] * (world - 1)
    assert "a batch: x float32 (5, 64), y int64 (5,)\n" in told.out
    assert "16,897 parameters, in 4 tensors:\n  0.weight (256, 64)\n  0.bias (256,)\n" in told.out
    # Kept for the backward pass: the input, and what comes out of ReLU and of the last layer.
    weights, kept = 4 * 16_897, 4 * 5 * (64 + 256 + 1)
    memory = re.search(r"about ([\d.]+) MiB: .* activations of 5 samples ([\d.]+)\n", told.out)
    assert memory is not None
    assert float(memory[1]) == pytest.approx((4 * weights + kept) / 2**20, abs=0.11)
    steps = -(-3 * 33 // (5 * world))
    assert f"{steps} steps of {5 * world} samples: " in told.out
    assert "validations, each of 9 samples:" in told.out

    complete(world, *flags, "--out", "here", "--keep", "99", "--log-every", "1", cwd=cwd)
    assert history(cwd / "here")[-1]["step"] == steps
    # By a count of its own: the steps in which a sample of the next epoch is the last.
    ends = [s for s in range(1, steps + 1) if s * 5 * world // 33 > (s - 1) * 5 * world // 33]
    lines = [line["step"] for line in history(cwd / "here") if "validation_loss" in line]
    assert lines == sorted({*ends, steps})
    assert {int(path.name[5:]) for path in (cwd / "here").glob("step-*")} >= set(lines)
    size = (cwd / "here" / f"step-{steps:08}").joinpath("weights.pt").stat().st_size
    assert size == pytest.approx(weights, rel=0.1)


@pytest.mark.full
def test_a_dry_run_finds_what_the_ranks_disagree_on(cwd: Path) -> None:
    first, second = run(2, *FLAGS[:-1], "wide.py:Ragged", "--dry-run", cwd=cwd)
    assert (first.status, second.status) == (2, 2)
    assert "the parameter weight: " in first.err


@pytest.mark.full
def test_the_weights_are_those_of_a_run_that_validates_by_steps(cwd: Path) -> None:
    for name, every in (("epochs", "epoch"), ("steps", "1")):
        flags = ("--eval-every", every, "--save-every", "0", "--out", name)
        complete(1, *FLAGS, *flags, "--log-every", "1", cwd=cwd)
    assert metrics(cwd / "epochs", "loss") == metrics(cwd / "steps", "loss")
    one, other = (
        torch.load(next((cwd / name).glob("step-*20")) / "weights.pt", weights_only=True)
        for name in ("epochs", "steps")
    )
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.full
@pytest.mark.parametrize("text", ["epochs", "-1", "1.5"])
def test_what_is_neither_steps_nor_an_epoch_is_refused(cwd: Path, text: str) -> None:
    (ended,) = run(0, *FLAGS, f"--eval-every={text}", cwd=cwd)
    assert ended.status == 2
    assert ended.err.endswith(f"--eval-every: {text!r} cannot be; type 0 or more, or epoch\n")
