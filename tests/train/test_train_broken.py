"""What a run says and leaves behind when its numbers, its code or a disk fail."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train.config import Config
from spawnlaunch.train.order import Order, Shuffled
from tests.support.late import Late
from tests.train.ranks import ENTRY, assert_refused, history, run

torch = Late("torch")
pytestmark = pytest.mark.full

TASK = """
import os, resource, signal, threading, time
import torch

LAST = int(os.environ.get("WORLD_SIZE", 1)) - 1


class Line:
    passes = 0

    def model(self):
        return torch.nn.Linear(3, 64)

    def dataset(self, split):
        return torch.arange(72.0).view(24, 3).sin()

    def loss(self, model, batch):
        # Among several ranks the first pass is the one that arranges buckets.
        self.passes += model.training
        out = model(batch)
        if model.training and self.passes == 5 + (LAST > 0) and os.environ.get("RANK") == str(LAST):
            out = self.spoilt(out)
        return (out - 1).square().sum(), len(batch)


class Nan(Line):
    def spoilt(self, out):
        return out * float("nan")


class Infinite(Line):
    class Backward(torch.autograd.Function):
        # Makes what the forward pass does not show.
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float("inf")

    def spoilt(self, out):
        return self.Backward.apply(out)


class InfiniteOwn(Infinite):
    def optimizer(self, model, lr):
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


class Raises(Line):
    def spoilt(self, out):
        broken_by_the_user()


class FullDisk(Line):
    def model(self):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
        return super().model()


def broken_by_the_user():
    # As a communicator that waits for its peers: an ordinary exit would wait for the thread.
    threading.Thread(target=time.sleep, args=(1000,)).start()
    raise ValueError("the user's own mistake")
"""
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
    assert re.search(said, json.loads((cwd / "error.json").read_text())["message"]["message"])


@pytest.mark.parametrize(("world", "task"), [(1, "Infinite"), (2, "InfiniteOwn")])
def test_a_gradient_that_is_not_finite_ends_the_run_before_it_is_saved(
    cwd: Path, world: int, task: str
) -> None:
    ranks = run(world, *FLAGS, "--task", f"task.py:{task}", cwd=cwd)
    assert_refused(ranks, "the norm of the gradient of step 3 is ", 1)
    assert re.search(r"step 3 is (nan|inf), and its loss is fin", ranks[0].err)
    assert saved(cwd) == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("masks", [True, False])
def test_the_kernel_and_the_host_leave_out_the_same(masks: bool, value: float) -> None:
    """The kernel is asked on a device only; the one of the CPU has the same switch."""
    from spawnlaunch.train.distributed import World
    from spawnlaunch.train.learner import Learner
    from spawnlaunch.train.loop import learn
    from spawnlaunch.train.task import Task

    class Sum(Task):
        def model(self) -> Any:
            return torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))

        def loss(self, model: Any, batch: Any) -> Any:
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


def test_torchrun_shows_the_error_of_the_rank_that_failed(cwd: Path) -> None:
    (cwd / "torchrun.py").write_text("from torch.distributed.run import main\nmain()\n")
    words = ("--standalone", "--nproc-per-node", "2", str(ENTRY), *FLAGS)
    (ended,) = run(0, *words, "--task", "task.py:Raises", cwd=cwd, program=cwd / "torchrun.py")
    assert ended.status == 1
    assert "the user's own mistake" in ended.err[ended.err.index("Root Cause") :]


def test_a_disk_that_is_full_ends_the_run(cwd: Path) -> None:
    (ended,) = run(0, *FLAGS, "--task", "task.py:FullDisk", cwd=cwd)
    assert (ended.status, ended.err) == (
        1,
        "train: error: cannot write the checkpoint of step 1 to here: File too large; make room, "
        "or go on elsewhere with --resume and --out\n",
    )
    assert saved(cwd) in ([], ["step-00000001.part"])
