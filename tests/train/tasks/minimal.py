import threading

import helper
import torch


class Points:
    def __init__(self, count, slope):
        self.count, self.slope = count, slope

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        x = torch.tensor([index / self.count])
        return x, helper.line(x, self.slope)


class Line:
    def __init__(self, slope: float = 2.0, points: int = 96, name: str | None = None):
        self.slope, self.points = slope, points

    def model(self):
        return torch.nn.Linear(1, 1)

    def dataset(self, split):
        return Points(self.points if split == "train" else 7, self.slope)

    def loss(self, model, batch):
        x, y = batch
        return (model(x) - y).square().sum(), len(x)


class Stuck(Line):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def collate(self, samples):  # which has the task, and so the lock
        return torch.utils.data.default_collate(samples)
