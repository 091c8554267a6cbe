import json
import os
import random

import numpy as np
import torch

RANK = os.environ["RANK"]


def numbers():
    # One normal number: NumPy and Python draw two at a time, and keep the second.
    return [random.gauss(0, 1), np.random.randn(), np.random.rand(), torch.randn(()).item()]


class Drawing:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.tensor([index, *numbers()], dtype=torch.float64)


class Draws:
    def model(self):
        return torch.nn.Linear(5, 1).double()

    def dataset(self, split):
        return Drawing(24 if split == "train" else 7)

    def loss(self, model, batch):
        noise = numbers()
        with open(f"rank{RANK}.jsonl", "a") as file:
            file.write(json.dumps([model.training, batch.tolist(), noise]) + "\n")
        return (model(batch) * noise[-1]).square().sum(), len(batch)
