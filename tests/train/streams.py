"""A task for each kind of data, which notes the samples of every step; and how to compare runs."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from tests.train.ranks import complete, run

TASKS = '''
import json, os, random, signal
import numpy as np
import torch
from torch.utils.data import IterableDataset

COUNT, WIDTH = 403, 3
RANK = os.environ.get("RANK", "0")
LAUNCH, DIES = os.environ.get("LAUNCH", "alone"), os.environ.get("DIES", "")
LENGTHS = 1 + (np.arange(COUNT) * 7919 % 41) ** 2 // 90


class Rows:
    """Each sample is a vector, some noise that it draws itself, its number, and its tokens."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        noise = random.random() + np.random.rand() + torch.rand((), dtype=torch.float64)
        x = torch.arange(index, index + WIDTH, dtype=torch.float64).sin() + 0.01 * noise
        return x, x.sum() ** 2, index


class Map:
    passes = 0

    def model(self):
        layers = torch.nn.Linear(WIDTH, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
        return torch.nn.Sequential(*layers).double()

    def dataset(self, split):
        return Rows() if split == "train" else torch.utils.data.Subset(Rows(), range(9))

    def optimizer(self, model, lr):
        self.made = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
        return self.made

    def loss(self, model, batch):
        x, y, index = batch
        if model.training:
            self.passes += 1
            if DIES == f"{RANK}:{self.passes}":
                os.kill(os.getpid(), signal.SIGKILL)
            with open(f"samples-{LAUNCH}-{RANK}", "a") as file:  # a step has a rate of its own
                print(json.dumps([self.made.param_groups[0]["lr"], index.tolist()]), file=file)
        return (model(x)[:, 0] - y).square().sum(), len(y)


class Lengths(Map):
    def lengths(self, samples):
        return LENGTHS


class InTurn(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        for index in range(len(self.rows)):
            yield self.rows[index]


class Kept(InTurn):
    """One that goes on from a state, and shows when it is read from the beginning."""

    at = 0

    def __iter__(self):
        while self.at < len(self.rows):
            self.at += 1
            yield self.rows[self.at - 1]
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]
        print(self.at, file=open(f"states-{RANK}", "a"))


class Turns(Map):
    kind = InTurn

    def dataset(self, split):
        return self.kind(super().dataset(split))


class States(Turns):
    kind = Kept


class Buffered(Turns):
    class kind(Kept):  # as Hugging Face datasets shuffle: no state has what is in the buffer
        def __iter__(self):
            buffer = []
            for row in super().__iter__():
                buffer.append(row)
                if len(buffer) == 9:
                    yield buffer.pop(self.at % 7)
            yield from buffer

class Arrays(Map):
    collate = lambda self, samples: tuple(map(np.array, zip(*samples)))

class Chained(Turns):
    dataset = lambda self, split: super().dataset(split) + super().dataset("validation")

class ByRank(Turns):
    dataset = lambda self, split: InTurn(torch.utils.data.Subset(Rows(), range(int(RANK), 99)))

class Void(Turns):
    dataset = lambda self, split: InTurn(Rows() if split == "train" else ())

class Spent(Turns):
    class kind(InTurn):
        __iter__ = lambda self: self.coming
        coming = iter([Rows()[i] for i in range(20)])
'''
KINDS = ("Lengths", "States", "Map", "Turns", "Buffered")
STEPS = 24
FLAGS = (
    *("--device", "cpu", "--lr", "1e-3", "--schedule", "linear", "--warmup", "0", "--clip", "0.5"),
    *("--eval-every", "8", "--save-every", "3", "--log-every", "4", "--steps", str(STEPS)),
)
Taken = dict[float, Counter[int]]  # how often each sample is in the step of this rate


def flags_of(kind: str) -> tuple[str, ...]:
    """Those that every run of a kind of data has."""
    size = ("--global-tokens", "700") if kind == "Lengths" else ("--global-batch", "48")
    return (*FLAGS, *size, "--task", f"streams.py:{kind}")


def taken(cwd: Path, launch: str) -> Taken:
    """Which samples the ranks of a launch have trained on in each step."""
    found: Taken = {}
    for file in sorted(cwd.glob(f"samples-{launch}-*")):
        for line in file.read_text().splitlines():
            rate, samples = json.loads(line)
            found.setdefault(rate, Counter()).update(samples)
    found.pop(1e-3, None)  # what is tried out before the first step
    return found


def undisturbed(cwd: Path, kind: str) -> Taken:
    """What a run on one rank takes, which writes to ``alone``."""
    (cwd / "streams.py").write_text(TASKS)
    complete(1, *flags_of(kind), "--out", "alone", cwd=cwd)
    return taken(cwd, "alone")


def rough(cwd: Path, kind: str, dice: random.Random, most: int, kills: int) -> list[Taken]:
    """The same run on other numbers of ranks, one of which is killed now and then, to ``rough``.

    Returns what the ranks of each launch have taken; the last of them ends well.
    """
    for number in range(kills + 1):
        world, passes = dice.randint(1, most), dice.randint(1, 3)
        flags = (*flags_of(kind), "--accumulate", str(passes), "--resume", "auto")
        loaders = ("--loader-workers", dice.choice("02"))
        dies = f"{dice.randrange(world)}:{dice.randint(2, STEPS * passes // (kills + 1))}"
        known = {"LAUNCH": f"rough{number}", "DIES": dies if number < kills else ""}
        ended = run(world, *flags, *loaders, "--out", "rough", cwd=cwd, **known)
        assert ({one.status for one in ended} == {0}) == (number == kills), ended
    return [taken(cwd, f"rough{number}") for number in range(kills + 1)]
