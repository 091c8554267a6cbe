import json
import os
import random
import signal

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
            if f"{RANK}:{self.passes}" == DIES:
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


class Shards(Map):
    def dataset(self, split):
        import datasets  # which takes long

        rows = datasets.IterableDataset.from_generator(numbers, gen_kwargs={"files": [0, 1, 2, 3]})
        return rows.map(made, remove_columns=["number"])

    def collate(self, samples):
        return [torch.tensor(np.array([s[n] for s in samples])) for n in ("x", "y", "index")]


def numbers(files):
    for file in files:
        for number in range(file * 96, file * 96 + 96):
            yield {"number": number}


def made(row):
    x, y, index = Rows()[row["number"]]
    return {"x": x.numpy(), "y": float(y), "index": index}


class Arrays(Map):
    collate = lambda self, samples: tuple(map(np.array, zip(*samples)))


class Chained(Turns):
    dataset = lambda self, split: super().dataset(split) + super().dataset("validation")


class ByRank(Turns):
    dataset = lambda self, split: InTurn(torch.utils.data.Subset(Rows(), range(int(RANK), 99)))


class Many(Turns):
    dataset = lambda self, split: InTurn(Rows() if split == "train" else 1001 * [Rows()[0]])


class Void(Turns):
    dataset = lambda self, split: InTurn(Rows() if split == "train" else ())


class Spent(Turns):
    class kind(InTurn):
        __iter__ = lambda self: self.coming
        coming = iter([Rows()[i] for i in range(20)])
