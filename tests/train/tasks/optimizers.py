import os

import torch
from torch import nn


class Line:
    def model(self):
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def dataset(self, split):
        return torch.arange(90.0).view(30, 3).sin()

    def loss(self, model, batch):
        return (5 * model(batch) - 3).square().sum(), len(batch)


class Counting(torch.optim.SGD):
    # Keeps its state in its groups, as optimizers without a schedule do.
    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            group["seen"].add_(1)
        return super().step(closure)


class Counts(Line):
    def __init__(self, decay: float = 0.1):
        self.decay = decay

    def optimizer(self, model, lr):
        groups = [{"params": [one], "seen": torch.zeros(())} for one in model.parameters()]
        return Counting(groups, lr=lr, weight_decay=self.decay)


class Other(Line):
    def optimizer(self, model, lr):
        return torch.optim.RMSprop(model.parameters())


class Sides(Line):
    # Matrices and vectors, in an order that a set of names could have.
    def optimizer(self, model, lr):
        turned = os.environ.get("TURNED")
        groups = [[], []]
        for name, one in model.named_parameters():
            groups[one.dim() == 1 or (turned == "moved" and name == "0.weight")].append(one)
        decays = [0.1, 0.0]
        if turned:
            groups, decays = [group[::-1] for group in groups[::-1]], decays[::-1]
        groups = [{"params": g, "weight_decay": d} for g, d in zip(groups, decays)]
        return torch.optim.AdamW(groups, lr=lr)
