import torch
import torch.nn.functional as F


class Base:
    def model(self):
        return torch.nn.Linear(2, 3)

    def dataset(self, split):
        generator = torch.Generator().manual_seed(len(split))
        return [(torch.randn(2, generator=generator), i % 3) for i in range(40)]

    def loss(self, model, batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)
