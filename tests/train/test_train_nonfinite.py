"""A step whose gradient is not finite changes no weight, and ends the run unless told to go on."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from spawnlaunch.train.config import Config
from spawnlaunch.train.distributed import World
from spawnlaunch.train.learner import Learner
from spawnlaunch.train.loop import learn
from spawnlaunch.train.order import Order, Shuffled
from spawnlaunch.train.task import Task
from tests.train.ranks import complete, metrics, run

STEPS, BAD, LR = 6, 3, 0.1
TASK = """
import os, torch

BAD = int(os.environ.get("BAD", 3))


class Bad(torch.autograd.Function):
    # A backward pass that makes what its forward pass does not show.
    @staticmethod
    def forward(ctx, x, value):
        ctx.value = value
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float(ctx.value), None


class Line:
    def __init__(self, value: str = "nan", own: bool = False):
        self.value, self.own, self.passes = value, own, 0

    def model(self):
        return torch.nn.Linear(3, 1)

    def dataset(self, split):
        return torch.arange(72.0).view(24, 3).sin()

    def loss(self, model, batch):
        out = model(batch)
        self.passes += model.training
        settling = int(os.environ.get("WORLD_SIZE", 1)) > 1
        last = os.environ.get("RANK", "0") == str(int(os.environ.get("WORLD_SIZE", 1)) - 1)
        if model.training and last and self.passes == BAD + settling:
            out = Bad.apply(out, self.value)
        return (out - 1).square().sum(), len(batch)


class Own(Line):
    def optimizer(self, model, lr):
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
"""
FLAGS = (
    *("--device", "cpu", "--steps", str(STEPS), "--lr", str(LR), "--warmup", "0", "--clip", "0.5"),
    *("--global-batch", "6", "--log-every", "1", "--eval-every", "0", "--save-every", "1"),
    *("--keep", "9", "--out", "here"),
)


def weights(out: Path, step: int) -> dict[str, Any]:
    return torch.load(out / f"step-{step:08}" / "weights.pt", weights_only=True)  # type: ignore[no-any-return]


@pytest.mark.full
@pytest.mark.parametrize(
    ("world", "loaders", "task", "value"),
    [
        (2, 0, "Line", "nan"),
        *(
            (world, loaders, task, value)
            for world, loaders, task, value in [
                (1, 0, "Own", "inf"),
                (1, 2, "Line", "inf"),
                (2, 2, "Own", "nan"),
                (3, 0, "Line", "inf"),
                (3, 2, "Line", "nan"),
            ]
        ),
    ],
)
def test_a_gradient_that_is_not_finite_ends_the_run_before_it_is_saved(
    tmp_path: Path, world: int, loaders: int, task: str, value: str
) -> None:
    (tmp_path / "task.py").write_text(TASK)
    flags = ("--task", f"task.py:{task}", "--value", value, "--loader-workers", str(loaders))
    ranks = run(world, *FLAGS, *flags, cwd=tmp_path)
    assert [rank.status for rank in ranks] == world * [1], ranks
    said = f"train: error: the norm of the gradient of step {BAD} is (nan|inf), and its loss is fin"
    assert re.match(said, ranks[0].err)
    assert [rank.err.count("\n") for rank in ranks] == [1] + (world - 1) * [0]
    saved = sorted(path.name for path in (tmp_path / "here").glob("step-*"))
    assert saved == ["step-00000001", "step-00000002"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("world", "loaders", "task"),
    [(1, 0, "Line"), (1, 2, "Own"), (2, 0, "Own"), (3, 2, "Line")],
)
def test_it_can_be_left_out_and_the_rest_is_as_torch_has_it(
    tmp_path: Path, world: int, loaders: int, task: str
) -> None:
    (tmp_path / "task.py").write_text(TASK)
    flags = ("--task", f"task.py:{task}", "--skip-nonfinite", "1")
    flags = (*flags, "--loader-workers", str(loaders))
    first, *_ = complete(world, *FLAGS, *flags, cwd=tmp_path)
    assert f"step {BAD} changed no weight: loss " in first.out
    before, after = (weights(tmp_path / "here", step) for step in (BAD - 1, BAD))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not torch.equal(after["weight"], weights(tmp_path / "here", BAD + 1)["weight"])
    norms = metrics(tmp_path / "here", "gradient_norm")
    assert norms.pop(BAD - 1) is None
    assert norms[1:] == pytest.approx(reference(tmp_path / "here"), rel=1e-4)
    assert metrics(tmp_path / "here", "loss")[BAD - 1] is None


def reference(out: Path) -> list[float]:
    """The norms that torch's own clipping finds at the weights of each checkpoint but the last."""
    samples = torch.arange(72.0).view(24, 3).sin()
    norms = []
    for step in range(2, STEPS + 1):
        if step == BAD:
            continue
        model = torch.nn.Linear(3, 1)
        model.load_state_dict(weights(out, step - 1))
        batch = samples[Order(Shuffled(24, 0), 6).batch(6 * (step - 1), 0).indices]
        torch.autograd.backward((model(batch) - 1).square().mean())
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
    return norms


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("masks", [True, False])
def test_the_kernel_and_the_host_leave_out_the_same(masks: bool, value: float) -> None:
    """The kernel is asked on a device only; the one of the CPU has the same switch."""

    class Sum(Task):
        def model(self) -> torch.nn.Module:
            return torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))

        def loss(self, model: torch.nn.Module, batch: Any) -> Any:
            return model(batch).sum(), len(batch)

    config = Config(device="cpu", skip_nonfinite=1)
    learner = Learner(Sum(), config, World(), torch.device("cpu"), 1.0)
    learner.kernel_leaves_out, learner.host_leaves_out = masks, not masks
    learn(learner, iter([torch.ones(2, 2)]), lambda: False)
    before, _ = learner.state()
    told = learn(learner, iter([torch.tensor([[1.0, value], [1.0, 1.0]])]), lambda: False)
    assert not told.finite
    after, rest = learner.state()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {int(one["step"]) for one in rest["optimizer"]["state"].values()} == {1}
    assert learn(learner, iter([torch.ones(2, 2)]), lambda: False).finite
    assert not torch.equal(learner.state()[0]["1.bias"], after["1.bias"])
