import os

import torch
from torch import nn


class Own:
    pass


class Odd(nn.BatchNorm1d):
    _version = 7  # of what its state_dict means

    def get_extra_state(self):
        return Own() if os.environ.get("AWRY") == "own" else {"torch": 1}

    def set_extra_state(self, state):
        pass


class Line:
    def __init__(self, width: int = 4):
        self.width = width

    def model(self):
        return nn.Sequential(nn.Linear(3, self.width), Odd(self.width), nn.Linear(self.width, 1))

    def dataset(self, split):
        return torch.arange(90.0).view(30, 3).sin()

    def loss(self, model, batch):
        return (model(batch) - 3).square().sum(), len(batch)
