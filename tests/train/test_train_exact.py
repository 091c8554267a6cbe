"""Results do not depend on how many ranks share the work."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from spawnlaunch.train.tasks.language import Language
from tests.support.matrix import mostly_full
from tests.train.ranks import SMALL, TEXT, complete, metrics

GLOBAL_BATCH = 12
STEPS = 15
FLAGS = (*SMALL, "--steps", str(STEPS), "--log-every", "1", "--warmup", "5", "--seed", "7")
RAGGED = """
from spawnlaunch.train.tasks.language import NO_TARGET, Language


class Ragged(Language):
    # Windows of very different numbers of targets, so that the ranks' batches differ too.
    def loss(self, model, batch):
        inputs, targets = batch
        for window, target in zip(inputs, targets):
            target[int(window.sum()) % 40 + 1 :] = NO_TARGET
        return super().loss(model, (inputs, targets))
"""


def uneven_context() -> int:
    """A context whose validation windows neither 2 nor 3 ranks can share evenly."""
    held_out = len(Language(1, 1, 32, TEXT).texts["validation"])
    return next(c for c in range(40, 400) if -((1 - held_out) // c) % 6 in (1, 5))


class Runs(dict[int, Path]):
    """The same training with so many ranks: each is trained when it is asked for."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd

    def __missing__(self, world: int) -> Path:
        flags = ("--batch-size", str(GLOBAL_BATCH // world), "--context", str(uneven_context()))
        complete(world, *FLAGS, *flags, "--out", f"world{world}", cwd=self.cwd)
        return self.setdefault(world, self.cwd / f"world{world}")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("exact"))


@pytest.mark.parametrize("world", mostly_full([2, 3]))
def test_every_step_has_the_loss_it_has_with_one_rank(runs: Runs, world: int) -> None:
    alone, shared = (metrics(runs[size], "loss") for size in (1, world))
    assert len(alone) == STEPS
    assert alone[-1] < alone[0] - 1
    assert shared == pytest.approx(alone, rel=2e-5)


@pytest.mark.parametrize("world", mostly_full([2, 3]))
def test_the_final_validation_loss_is_that_of_one_rank(runs: Runs, world: int) -> None:
    alone, shared = (metrics(runs[size], "validation_loss") for size in (1, world))
    assert len(alone) == 1
    assert shared == pytest.approx(alone, rel=2e-5)


@pytest.mark.full
def test_uneven_ranks_and_accumulated_passes_still_train_as_one(tmp_path: Path) -> None:
    (tmp_path / "ragged.py").write_text(RAGGED)
    ragged = (*FLAGS, "--task", "ragged.py:Ragged", "--context", "48")
    shapes = {
        "alone": (1, "--batch-size", "8"),
        "shared": (2, "--batch-size", "4"),
        "accumulated": (1, "--batch-size", "2", "--accumulate", "4"),
        "both": (2, "--batch-size", "2", "--accumulate", "2"),
        "uneven": (3, "--global-batch", "8", "--accumulate", "2"),
    }
    for name, (world, *flags) in shapes.items():
        complete(world, *ragged, *flags, "--out", name, cwd=tmp_path)
    alone = metrics(tmp_path / "alone", "loss")
    assert len(alone) == STEPS
    for name in shapes:
        assert metrics(tmp_path / name, "loss") == pytest.approx(alone, rel=2e-5), name


@pytest.mark.parametrize("world", mostly_full([2, 1, 3]))
def test_the_validation_loss_is_that_of_the_saved_weights(runs: Runs, world: int) -> None:
    saved = runs[world] / f"step-{STEPS:08}"
    progress = torch.load(saved / "training.pt", weights_only=True)["progress"]
    task = Language(uneven_context(), layers=1, width=32, text=TEXT)
    model = task.model()
    model.load_state_dict(torch.load(saved / "weights.pt", weights_only=True))
    assert reference_bits_per_byte(model, task) == pytest.approx(progress["loss"], rel=1e-6)
    assert [progress["loss"]] == metrics(runs[world], "validation_loss")


@torch.no_grad()
def reference_bits_per_byte(model: torch.nn.Module, task: Language) -> float:
    """One window after the other, one byte counted after the other, in double precision."""
    text, bits = task.texts["validation"].long(), []
    for start in range(0, len(text) - 1, task.context):
        piece = text[start : start + task.context + 1]
        chances = F.log_softmax(model(piece[None, :-1])[0].double(), dim=-1)
        bits.append(-chances.gather(1, piece[1:, None]).flatten() / torch.log(torch.tensor(2.0)))
    every = torch.cat(bits)
    assert len(bits) % 2 == 1
    assert len(bits) % 3 != 0
    assert len(every) == len(text) - 1
    return float(every.mean())


def test_a_checkpoint_says_what_it_is(runs: Runs) -> None:
    saved = torch.load(runs[2] / f"step-{STEPS:08}" / "training.pt", weights_only=True)
    assert saved["identity"]["task"] == "language"
    assert "sha256" in saved["identity"]["data"]
    assert saved["world_size"] == 2
    assert len(saved["rng"]) == 2
    assert saved["progress"]["step"] == saved["config"]["steps"] == STEPS
    assert saved["progress"]["samples"] == STEPS * GLOBAL_BATCH
    assert sorted(path.name for path in runs[2].iterdir()) == [
        "best",
        "config.toml",
        "evaluation.json",
        "lock",
        "metrics.jsonl",
        f"step-{STEPS:08}",
    ]


CARRIED = """
import os, torch
import torch.distributed as dist
from spawnlaunch.train.distributed import Buckets, World

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
buckets = Buckets(World(rank, size))
every = torch.Generator().manual_seed(1)
for number in range(150):
    dtype = (torch.float32, torch.float64, torch.bfloat16)[number % 3]
    # Whatever 64 bits can be: also not a number, infinite, huge and tiny.
    bits = torch.randint(-(2**63), 2**63 - 1, (size, 3), generator=every)
    values = bits.view(torch.float64) if number % 2 else bits.double() / 7
    gradients = torch.randint(-50, 50, (size, 1 + number), generator=every).to(dtype)
    for is_last in (False, True):
        if is_last:
            wait = buckets.start_sum(values[rank].clone())
        sums = buckets.send(gradients[rank].clone(), is_last).wait()
        assert sums.dtype == dtype and torch.equal(sums, gradients.sum(0)), (number, sums)
    found = wait()
    if dtype == torch.bfloat16:  # that cannot carry them: gloo adds them up, in its own order
        assert torch.allclose(found, values.sum(0), equal_nan=True), (number, found)
    else:
        same = found.view(torch.int64) == values.sum(0).view(torch.int64)
        assert same.all(), (number, found)
dist.destroy_process_group()
"""


@pytest.mark.full
@pytest.mark.parametrize("world", mostly_full([2, 3]))
def test_numbers_come_through_a_bucket_of_gradients_bit_by_bit(tmp_path: Path, world: int) -> None:
    program = tmp_path / "carried.py"
    program.write_text(CARRIED)
    complete(world, cwd=tmp_path, program=program)
