"""Blocks whose activations are computed again: the same numbers, of less that is kept."""

from pathlib import Path

import pytest
import torch

from spawnlaunch.train.model import checkpoint_activations
from spawnlaunch.train.tasks.language import GPT
from tests.train.ranks import TINY_MODEL, complete, history, run

FLAGS = (
    *(*TINY_MODEL, "--layers", "3", "--context", "16", "--global-batch", "6", "--steps", "6"),
    *("--eval-every", "3", "--save-every", "0", "--log-every", "1"),
)
TASK = """
from torch import nn
from spawnlaunch.train.tasks.language import Language


class Dropped(Language):
    # A block that draws random numbers has to draw the same ones again.
    def model(self):
        model = super().model()
        for block in model.blocks:
            block.down = nn.Sequential(block.down, nn.Dropout(0.3))
        return model


class Normed(Language):
    def model(self):
        model = super().model()
        model.blocks.append(nn.BatchNorm1d(16))
        return model


class Flat(Language):
    def model(self):
        return nn.Linear(1, 1)
"""


@pytest.mark.full
@pytest.mark.parametrize(("world", "loaders"), [(2, 0), *((n, k) for n in (1, 3) for k in (0, 2))])
def test_activations_computed_again_give_the_same_losses(
    tmp_path: Path, world: int, loaders: int
) -> None:
    (tmp_path / "task.py").write_text(TASK)
    flags = (*FLAGS, "--task", "task.py:Dropped", "--loader-workers", str(loaders))
    complete(world, *flags, "--out", "kept", cwd=tmp_path)
    complete(world, *flags, "--checkpoint-activations", "--out", "again", cwd=tmp_path)
    assert history(tmp_path / "again") == history(tmp_path / "kept")
    kept, again = (
        torch.load(tmp_path / out / "step-00000006" / "weights.pt", weights_only=True)
        for out in ("kept", "again")
    )
    assert all(torch.equal(kept[name], again[name]) for name in kept)
    assert kept.keys() == again.keys()


def kept_bytes(model: torch.nn.Module) -> int:
    """What a forward pass keeps for the backward pass, as torch's own hooks see it."""
    sizes: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(torch.zeros(4, 16, dtype=torch.long)).sum()
    return sum(sizes.values())


@pytest.mark.full
def test_fewer_bytes_are_kept_for_the_backward_pass() -> None:
    model = GPT(256, 16, 4, 64)
    before = kept_bytes(model)
    checkpoint_activations(model)
    assert kept_bytes(model) < before / 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("Normed", "the block blocks.3 has a BatchNorm, which would count its samples twice;"),
        ("Flat", "the model has no nn.ModuleList or nn.Sequential of blocks; leave it out"),
    ],
)
def test_what_cannot_be_computed_again_is_refused(tmp_path: Path, task: str, said: str) -> None:
    (tmp_path / "task.py").write_text(TASK)
    flags = ("--task", f"task.py:{task}", "--checkpoint-activations", "--out", "here")
    (ended,) = run(0, *FLAGS, *flags, cwd=tmp_path)
    assert ended.status == 2
    assert ended.err.startswith(f"train: error: --checkpoint-activations: {said}")
