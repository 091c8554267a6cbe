"""The number of samples costs no memory, and an old run goes on in the order that it began with."""

import json
import re
from itertools import chain
from pathlib import Path

import pytest

from spawnlaunch.train import checkpoint
from spawnlaunch.train.order import STORED, permutation
from tests.train.ranks import complete

TASK = """
import json, os, torch


class Numbers:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index


class Large:
    def __init__(self, count: int):
        self.count = count

    def model(self):
        return torch.nn.Linear(1, 1)

    def dataset(self, split):
        return Numbers(self.count if split == "train" else 4)

    def loss(self, model, batch):
        if model.training:
            with open(f"taken-{os.environ['RANK']}", "a") as file:
                print(json.dumps(batch.tolist()), file=file)
        return model(torch.ones(len(batch), 1)).square().sum(), len(batch)
"""
FLAGS = ("--device", "cpu", "--task", "task.py:Large", "--global-batch", "8", "--resume", "auto")


@pytest.mark.full
def test_a_million_million_samples_cost_no_memory(cwd: Path) -> None:
    peaks_mib = []
    for count in (1000, 10**12):
        flags = ("--count", f"{count}", "--steps", "40", "--out", f"{count}")
        (ended,) = complete(1, *FLAGS, *flags, cwd=cwd)
        peaks_mib += [float(said) for said in re.findall(r"peak memory ([\d.]+) MiB", ended.out)]
    assert peaks_mib[1] - peaks_mib[0] < 50, peaks_mib


@pytest.mark.full
def test_a_run_of_old_goes_on_in_the_order_that_it_began_with(cwd: Path) -> None:
    count = STORED + 99  # from here on a new run computes another order
    flags = (*FLAGS, "--count", f"{count}", "--out", "old", "--steps")
    complete(1, *flags, "3", cwd=cwd)
    weights, training = checkpoint.load(checkpoint.path_of(cwd / "old", 3))
    for new in ("order", "stream", "longest_save_s", "global_batch"):
        del training[new]
    del training["identity"]["order"], training["progress"]["taken"]
    checkpoint.write(cwd / "old", 3, weights, training, check=False)
    order = permutation(count, 0, 0).tolist()
    for world, steps in ((2, 6), (1, 9)):  # the second goes on from what the first has saved
        complete(world, *flags, f"{steps}", cwd=cwd)
        own = [(cwd / f"taken-{rank}").read_text().splitlines()[-3:] for rank in range(world)]
        taken = [json.loads(part) for step in zip(*own, strict=True) for part in step]
        assert [*chain(*taken)] == order[8 * (steps - 3) : 8 * steps]
