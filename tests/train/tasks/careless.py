import os

import torch
import torch.nn.functional as F
from torch import nn

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Line:
    def model(self):
        return nn.Linear(1, 1)

    def dataset(self, split):
        return [(torch.tensor([i / 100]), i) for i in range(120 if split == "train" else 24)]

    def loss(self, model, batch):
        x, _ids = batch
        return F.mse_loss(model(x)[:, 0], torch.ones(len(x)), reduction="sum"), len(x)


class Sharded(Line):
    def dataset(self, split):
        return super().dataset(split)[RANK::WORLD]


class ShardedTest(Line):
    def dataset(self, split):
        return super().dataset(split)[RANK::WORLD] if split == "test" else super().dataset(split)


class Hashed(Line):
    # Numbers its labels by a set, whose order is another one in each process.
    def dataset(self, split):
        names = list({"one", "two", "three", "four", "five", "six", "seven", "eight", "nine"})
        return [(torch.tensor([i / 100]), names.index("one")) for i in range(60)]


class Objects(Line):
    # A sample of a class of its own; labels differ.
    def dataset(self, split):
        return [Sample(i, RANK if split == "validation" else 0) for i in range(24)]

    def collate(self, samples):
        return torch.tensor([[one.x / 24] for one in samples]), samples


class Sample:
    def __init__(self, x, label):
        self.x, self.labels = x, {"label": {label}}


class Random(Line):
    # Draws from a generator of its own, which nobody seeds, and from the seeded one.
    def dataset(self, split):
        return Drawn(torch.Generator())


class Drawn(list):
    def __init__(self, generator):
        super().__init__(range(24))
        generator.seed()
        self.generator = generator

    def __getitem__(self, index):
        return torch.rand(1, generator=self.generator) + torch.rand(1), index


class Rows(Line):
    def __init__(self, rows: int = 100):
        self.rows = rows

    def describe(self):
        return "rows of the sensor"

    def dataset(self, split):
        first = 1 if os.environ.get("OTHER") == split else 0
        count = self.rows if split == "train" else 10
        return [(torch.tensor([i / 100]), i) for i in range(first, first + count)]


class Thaw(Line):
    thaws = True

    def model(self):
        model = nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1))
        model[0].requires_grad_(not self.thaws)
        self.passes = 0
        return model

    def loss(self, model, batch):
        self.passes += model.training
        if self.passes == 5:
            model[0].requires_grad_(self.thaws)
        return super().loss(model, batch)


class Freeze(Thaw):
    thaws = False


class Sparse(Line):
    def __init__(self, layout: str = "coo"):
        self.layout = layout

    def model(self):
        model = nn.Linear(1, 1)
        eye = torch.eye(1)
        model.register_buffer(
            "matrix", eye.to_sparse() if self.layout == "coo" else eye.to_sparse_csr()
        )
        return model

    def loss(self, model, batch):
        return super().loss(lambda x: model((model.matrix @ x.t()).t()), batch)


class Grow(Line):
    # Of its forward passes 6 are trials, then follow 8 of training, and those of the validation.
    def __init__(self, at: int, saved: bool = True):
        self.at, self.saved, self.passes = at, saved, 0

    def model(self):
        model = nn.Linear(1, 1)
        model.register_buffer("kept", torch.ones(1))
        model.register_buffer("mask", torch.ones(2), persistent=self.saved)
        return model

    def loss(self, model, batch):
        self.passes += 1
        if self.passes == self.at and RANK == WORLD - 1:
            model.register_buffer("mask", torch.ones(4), persistent=self.saved)
        return super().loss(model, batch)


class Counts(Line):
    def __init__(self):
        self.weight, self.seen = 0.0, []

    def state_dict(self):
        return {"weight": self.weight, "seen": self.seen}

    def load_state_dict(self, state):
        self.weight, self.seen = state["weight"], list(state["seen"])

    def loss(self, model, batch):
        loss, count = super().loss(model, batch)
        if torch.is_grad_enabled():
            self.weight += 0.1
            self.seen.append(len(batch[1]))
        return loss * self.weight, count


class Gaps(Line):
    def dataset(self, split):
        first = 0 if split == "train" else 1
        return [None] * first + super().dataset(split)[: 2 if first else 24]

    def collate(self, samples):
        samples = [one for one in samples if one is not None]
        return torch.utils.data.default_collate(samples) if samples else None


class NoGaps(Gaps):
    def dataset(self, split):
        return super().dataset(split) if split == "train" else [None] * 3


class Best(Line):
    # Training pulls the weight to 3, validation wants 1: the best is early.
    def model(self):
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def dataset(self, split):
        return [(torch.ones(1), 3.0 if split == "train" else 1.0)] * 64

    def loss(self, model, batch):
        wanted = batch[1].float()
        return F.mse_loss(model(batch[0])[:, 0], wanted, reduction="sum"), len(batch[0])

    def optimizer(self, model, lr):
        return torch.optim.SGD(model.parameters(), lr=lr)

    def export(self, model, directory):
        (directory / "exported.txt").write_text(f"{model.weight.item():.6f}\n")


class NoGradient(Line):
    def loss(self, model, batch):
        return torch.ones(len(batch[1]), requires_grad=True).sum(), len(batch[1])
