import os

import torch
from torch import nn

from spawnlaunch.train.task import Task
from spawnlaunch.train.tasks.language import Language


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


class Base(Task):
    def model(self):
        return Net()

    def dataset(self, split):
        with open("asked", "a") as file:
            file.write(f"{os.environ.get('RANK', 0)} {split}\n")
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


class Averaged(Base):
    def measure(self, model, batch):
        loss, count = self.loss(model, batch)
        mean = model.norm.running_mean.sum()
        return {"loss": loss, "count": count, "means": mean, "batches": 1}

    def report(self, sums):
        return {"mean": sums["means"] / sums["batches"], "none": float("nan")}


class Counts(Task):
    # Each rank adds its own number in every training step, so that the ranks come apart.
    def __init__(self, kept: bool = False):
        self.kept = kept

    def model(self):
        model = nn.Linear(1, 1)
        model.register_buffer("seen", torch.zeros(()), persistent=self.kept)
        return model

    def dataset(self, split):
        return torch.ones(16, 1)

    def loss(self, model, batch):
        if model.training:
            model.seen += int(os.environ["RANK"]) + 1
            print(f"seen {int(model.seen)}", flush=True)
        return model(batch).sum(), torch.tensor(len(batch))


class Mapped(Base):
    def loss(self, model, batch):
        if model.training:
            mapped = open("/proc/self/maps").read()
            print("mapped", "step-" in mapped, flush=True)
        return super().loss(model, batch)


class Dropped(Language):
    # A block that draws random numbers has to draw the same ones again.
    def model(self):
        model = super().model()
        for block in model.blocks:
            block.down = nn.Sequential(block.down, nn.Dropout(0.3))
        return model
