import threading

import helper
import torch


class Line:
    def __init__(self, slope: float = 2.0, points: int = 96, name: str | None = None):
        self.slope, self.points = slope, points

    def model(self):
        return torch.nn.Linear(1, 1)

    def dataset(self, split):
        class Points:  # no other process knows this class by name
            def __len__(self):
                return count

            def __getitem__(self, index):
                x = torch.tensor([place(index)])
                return x, helper.line(x, slope)

        place = lambda index: index / count
        count, slope = self.points if split == "train" else 7, self.slope
        return Points()

    def loss(self, model, batch):
        x, y = batch
        return (model(x) - y).square().sum(), len(x)


class Stuck(Line):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
