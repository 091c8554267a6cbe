import os
import pathlib  # noqa: F401  # what a test adds uses it
import random

import numpy as np
import torch

from spawnlaunch.train.errors import RefusedError  # noqa: F401  # likewise

RANK = int(os.environ.get("RANK", 0))
OWN = RANK == 1  # this rank is not as the others


class Line:
    def __init__(self):
        self.slope = random.random() + np.random.rand() + torch.rand(())

    def model(self):
        return torch.nn.Linear(1, 1)

    def dataset(self, split):
        x = torch.rand(32, 1) + random.random() + np.random.rand()
        order = torch.randperm(32)
        with open(f"order{RANK}", "a") as file:
            print(order.tolist(), x.sum().item(), float(self.slope), file=file)
        part = x[order[:24] if split == "train" else order[24:]]
        return list(zip(part, part * self.slope))

    def loss(self, model, batch):
        x, y = batch
        return (model(x) - y).square().sum(), len(x)
