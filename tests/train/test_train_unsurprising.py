"""What a task has set up stays as it is, and works on any number of ranks as on one."""

import gc
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from spawnlaunch.train.config import Config
from spawnlaunch.train.device import without_collections
from spawnlaunch.train.distributed import World
from spawnlaunch.train.learner import Learner
from spawnlaunch.train.model import in_eval_mode
from spawnlaunch.train.order import Order, Shuffled
from spawnlaunch.train.task import Task
from tests.train.ranks import complete, history, metrics, run

TASK = """
import json, os, weakref
import torch
import torch.nn.functional as F
from torch import nn
from spawnlaunch.train.task import Task


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        return self.head(self.norm(self.body(x)))

    def logits(self, x):
        return self(x)


class Base(Task):
    def model(self):
        return Net()

    def dataset(self, split):
        with open("asked", "a") as file:
            file.write(f"{os.environ.get('RANK', 0)} {split}\\n")
        return torch.arange(90.0).view(30, 3).sin()

    def loss(self, model, batch):
        return (model(batch) - 3).square().sum(), len(batch)


class Frozen(Base):  # the norm is not to follow the batches
    def model(self):
        net = Net()
        net.norm.eval()
        return net


class Asleep(Base):  # as from_pretrained leaves a model
    def model(self):
        return Net().eval()


class ByMethod(Frozen):
    def loss(self, model, batch):
        return (model.logits(batch) - 3).square().sum(), len(batch)


class ByParts(Frozen):
    def loss(self, model, batch):
        assert isinstance(model, Net)
        return (model.head(model.norm(model.body(batch))) - 3).square().sum(), len(batch)


class InPieces(Frozen):
    def loss(self, model, batch):
        return sum((model(one) - 3).square().sum() for one in batch.split(1)), len(batch)


class Wide(Task):
    def model(self):
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()

    def dataset(self, split):
        return torch.arange(90.0, dtype=torch.float64).view(30, 3).sin()

    def loss(self, model, batch):
        return (5 * model(batch) - 3).square().sum(), len(batch)


class WideOwn(Wide):
    def optimizer(self, model, lr):
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


class Littering(Base):
    alive, kept = 0, []

    def loss(self, model, batch):
        class Circle:
            pass

        one = Circle()
        one.itself = one
        Littering.alive += 1
        weakref.finalize(one, self.gone)
        self.kept.append(one)  # for longer than from one collection to the next
        del self.kept[:-5]
        print(f"alive {Littering.alive}", flush=True)
        return super().loss(model, batch)

    @staticmethod
    def gone():
        Littering.alive -= 1


class Two(Base):
    def optimizer(self, model, lr):
        return [torch.optim.SGD(part.parameters(), lr=lr) for part in (model.body, model.head)]


class Mapped(Base):
    def loss(self, model, batch):
        if model.training:
            mapped = open("/proc/self/maps").read()
            print("mapped", "step-" in mapped, flush=True)
        return super().loss(model, batch)
"""
FLAGS = (
    *("--device", "cpu", "--global-batch", "6", "--log-every", "1", "--warmup", "0"),
    *("--eval-every", "2", "--save-every", "0", "--steps", "6", "--out", "here"),
)


def task(name: str) -> tuple[str, str]:
    return "--task", f"task.py:{name}"


def weights(cwd: Path, out: str = "here", step: int = 6) -> dict[str, Any]:
    file = cwd / out / f"step-{step:08}" / "weights.pt"
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


@pytest.mark.parametrize("world", [1, pytest.param(2, marks=pytest.mark.full)])
def test_what_model_left_in_eval_mode_stays_in_it(cwd: Path, world: int) -> None:
    first, *_ = complete(world, *FLAGS, *task("Frozen"), cwd=cwd)
    assert "left them: norm\n" in first.out
    assert torch.equal(weights(cwd)["norm.running_mean"], torch.zeros(4))
    assert weights(cwd)["norm.num_batches_tracked"] == 0


@pytest.mark.full
def test_a_model_that_is_in_eval_mode_as_a_whole_is_trained(cwd: Path) -> None:
    (ended,) = complete(1, *FLAGS, *task("Asleep"), cwd=cwd)
    assert "in eval mode" not in ended.out
    assert weights(cwd)["norm.num_batches_tracked"] == 6


class Tree(Task):
    def __init__(self, made: nn.Module) -> None:
        self.made = made

    def model(self) -> nn.Module:
        return self.made


trees = st.recursive(st.booleans(), lambda inner: st.lists(inner, min_size=1, max_size=3))


def grown(tree: Any) -> nn.Module:
    """Modules in the shape of a tree, each leaf in training mode or not."""
    if isinstance(tree, bool):
        return nn.Linear(1, 1).train(tree)
    return nn.Sequential(*map(grown, tree))


@settings(deadline=None, max_examples=50)
@given(trees)
def test_each_module_keeps_its_mode_over_a_validation(tree: Any) -> None:
    model = nn.Sequential(grown(tree))
    before = [module.training for module in model.modules()]
    learner = Learner(Tree(model), Config(), World(), torch.device("cpu"), 1.0)
    with suppress(KeyError), learner.evaluating():
        assert not any(module.training for module in model.modules())
        raise KeyError
    assert [module.training for module in model.modules()] == before
    assert bool(in_eval_mode(model)) == (not all(before))


@pytest.mark.full
@pytest.mark.parametrize("name", ["ByMethod", "ByParts", "InPieces"])
def test_a_task_uses_its_model_as_it_wants_on_any_number_of_ranks(cwd: Path, name: str) -> None:
    complete(1, *FLAGS, *task("Frozen"), cwd=cwd)
    for world in (1, 2, 3):
        flags = (*FLAGS, *task(name), "--out", f"{world}")
        complete(world, *flags, *(("--find-unused",) if world == 3 else ()), cwd=cwd)
        for mine, usual in zip(history(cwd / f"{world}"), history(cwd / "here"), strict=True):
            assert mine == pytest.approx(usual, rel=1e-5)


def by_hand(own: bool, clip: float) -> dict[str, Any]:
    """The weights of Wide after six steps of a loop that knows of no ranks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    matrices = [p for p in model.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer: Any = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95))
    if own:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    samples = torch.arange(90.0, dtype=torch.float64).view(30, 3).sin()
    order = Order(Shuffled(30, 0), 6)
    for step in range(6):
        batch = samples[order.batch(6 * step, 0).indices]
        torch.autograd.backward((5 * model(batch) - 3).square().mean())
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))  # type: ignore[union-attr]
        for p in model.parameters():
            p.grad *= min(1.0, clip / (norm + 1e-6)) if clip else 1.0
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


@pytest.mark.full
@pytest.mark.parametrize("world", [1, 2, 3, 6])
@pytest.mark.parametrize("name", ["Wide", "WideOwn"])
@pytest.mark.parametrize("clip", [0.0, 0.7])
def test_weights_in_double_precision_are_exact_to_twelve_digits(
    cwd: Path, name: str, world: int, clip: float
) -> None:
    flags = (*FLAGS, *task(name), "--lr", "0.01", "--schedule", "constant", "--clip", f"{clip}")
    passes = ("--accumulate", "2") if world < 6 else ()
    complete(world, *flags, *passes, cwd=cwd)
    expected = by_hand(name == "WideOwn", clip)
    for name, value in weights(cwd).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("world", [1, pytest.param(2, marks=pytest.mark.full)])
def test_garbage_that_outlived_a_collection_goes_too(cwd: Path, world: int) -> None:
    flags = ("--gc-every", "2", "--steps", "40", "--eval-every", "0", "--eval-batch-size", "1")
    first, *_ = complete(world, *FLAGS, *task("Littering"), *flags, cwd=cwd)
    alive = [int(line.split()[1]) for line in first.out.splitlines() if line.startswith("alive")]
    assert len(alive) > 40
    assert max(alive) < 15


def test_collections_are_what_they_were_behind_the_loop() -> None:
    frozen = gc.get_freeze_count()
    with suppress(KeyError), without_collections(True):
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    assert gc.get_freeze_count() <= frozen


@pytest.mark.parametrize("world", [1, pytest.param(2, marks=pytest.mark.full)])
def test_dataset_is_asked_once_for_each_split(cwd: Path, world: int) -> None:
    flags = ("--eval-splits", "train,validation,test", "--loader-workers", "1")
    complete(world, *FLAGS, *task("Base"), *flags, cwd=cwd)
    asked = sorted((cwd / "asked").read_text().splitlines())
    splits = ("test", "train", "validation")
    assert asked == [f"{rank} {split}" for rank in range(world) for split in splits]
    (cwd / "asked").unlink()
    complete(world, *FLAGS, *task("Base"), "--dry-run", cwd=cwd)
    asked = sorted((cwd / "asked").read_text().splitlines())
    assert asked == [f"{rank} {split}" for rank in range(world) for split in splits[1:]]


@pytest.mark.full
def test_two_optimizers_are_refused_by_that_name(cwd: Path) -> None:
    first, second = run(2, *FLAGS, *task("Two"), cwd=cwd)
    assert (first.status, second.status, second.err) == (2, 2, "")
    assert first.err.startswith("train: error: optimizer() returns 2 opt")
    assert first.err.count("\n") == 1


@pytest.mark.full
def test_a_checkpoint_is_not_mapped_any_more_once_it_is_read(cwd: Path) -> None:
    """What is mapped could not be removed on some network file systems."""
    complete(1, *FLAGS, *task("Mapped"), cwd=cwd)
    more = ("--steps", "8", "--resume", "auto")
    (ended,) = complete(1, *FLAGS, *task("Mapped"), *more, cwd=cwd)
    assert "resumed from step 6" in ended.out
    assert "mapped False" in ended.out
    assert "mapped True" not in ended.out


@pytest.mark.full
def test_weights_are_read_as_torch_wrote_them_long_ago(cwd: Path) -> None:
    complete(1, *FLAGS, *task("Base"), cwd=cwd)
    torch.save(weights(cwd), cwd / "old.pt", _use_new_zipfile_serialization=False)
    flags = ("--eval-only", "--init", "old.pt", "--out", "there")
    complete(1, *FLAGS, *task("Base"), *flags, cwd=cwd)
    assert (cwd / "there" / "evaluation.json").exists()
    assert metrics(cwd / "here", "validation_loss")
