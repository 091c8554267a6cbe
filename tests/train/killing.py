"""Kill a run again and again, resume it each time, and see whether anything shows."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import torch

from spawnlaunch.train.checkpoint import all_in, damage
from tests.train.ranks import ON_TEXT, Ended, complete, finish, history, start, until

# Buckets of 1 MiB hold the gradients of a few layers, so that there are several of them; a
# checkpoint every third step is being written for most of the time.
FLAGS = (
    *(*ON_TEXT, "--layers", "3", "--width", "96", "--context", "32"),
    *("--bucket-mb", "1", "--accumulate", "2", "--batch-size", "2", "--seed", "5"),
    *("--log-every", "1", "--eval-every", "10", "--save-every", "3", "--resume", "auto"),
)

NOISY = """
import random, numpy, torch
from spawnlaunch.train.tasks.language import Language


class Augmented:
    # A few bytes of each sample are replaced at random, by all three generators.
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        inputs, targets = self.samples[index]
        inputs[random.randrange(len(inputs))] = numpy.random.randint(256)
        inputs[torch.randint(len(inputs), ())] = 32
        return inputs, targets


class Noisy(Language):
    def dataset(self, split):
        return Augmented(super().dataset(split))

    # Dropout draws from torch's generator; numpy's and Python's are asked too.
    def loss(self, model, batch):
        noise = random.random() + numpy.random.random()
        loss, count = super().loss(model, batch)
        return torch.nn.functional.dropout(loss.expand(64), 0.5).mean() * noise, count
"""


def kill_and_resume(
    cwd: Path, world: int, steps: int, kills: int, seed: int, loaders: int = 0
) -> int:
    """Compare a killed run with one that nobody killed; how many kills hit a run under way.

    The ranks of the first have so many ``loaders`` each, those of the other read by themselves.
    """
    (cwd / "noisy.py").write_text(NOISY)
    flags = (*FLAGS, "--task", "noisy.py:Noisy", "--steps", str(steps))
    ranks = start(world, *flags, "--out", "whole", cwd=cwd)
    until(ranks[0], "writing to")
    began = time.monotonic()
    assert [one.status for one in finish(ranks)] == world * [0]
    whole_s = time.monotonic() - began
    flags = (*flags, "--loader-workers", str(loaders))
    moments, hits = random.Random(seed), 0
    for _ in range(kills):
        ranks = start(world, *flags, "--out", "killed", cwd=cwd)
        until(ranks[0], "writing to")
        time.sleep(moments.uniform(0, 1.2 * whole_s / kills))
        hits += ranks[0].poll() is None
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
        whole_or_absent(finish(ranks), cwd / "killed")
    complete(world, *flags, "--out", "killed", cwd=cwd)
    assert history(cwd / "killed") == history(cwd / "whole")
    assert weights(cwd / "killed") == weights(cwd / "whole")
    assert not list((cwd / "killed").glob("*.part"))
    return hits


def weights(out: Path) -> dict[str, bytes]:
    """The bytes of all weights in the newest checkpoint of a run."""
    saved = torch.load(all_in(out)[0] / "weights.pt", weights_only=True)
    return {name: weight.numpy().tobytes() for name, weight in saved.items()}


def whole_or_absent(ended: list[Ended], out: Path) -> None:
    """Every checkpoint that has its name is whole, whenever the run was killed."""
    assert all(one.status in (-signal.SIGKILL, 0) for one in ended), ended
    if out.exists():
        assert [damage(path) for path in all_in(out)] == [""] * len(all_in(out))
