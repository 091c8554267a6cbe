import dataclasses

import torch
from torch import nn


@dataclasses.dataclass(frozen=True, slots=True)
class Record:  # neither a tensor nor a container
    x: torch.Tensor
    terms: torch.Tensor
    names: list


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.one, self.two, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 1)
        if kind == "tied":
            self.two.weight = self.one.weight
        if kind == "frozen":
            self.two.requires_grad_(False)

    def forward(self, x):
        # The first global batch has samples on both sides.
        unused = self.kind == "sometimes" and self.training and not (x[:, 0] > 0.9).any()
        if unused or self.kind == "unused":
            return self.head(torch.tanh(self.one(x)))[:, 0]
        return self.head(torch.tanh(self.one(x) + self.two(x)))[:, 0]


class Rows:
    def __init__(self, length, single):
        self.length, self.single = length, single

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        x = torch.arange(3 * index, 3 * index + 3, dtype=torch.float64).sin()
        return x.float() if self.single else x, 1 + index % 4, f"row {index}"


class Terms:
    # A sample counts as often as it has terms, so that shares of as many samples count differently.
    def __init__(self, kind: str = "plain"):
        self.kind = kind

    def model(self):
        return Net(self.kind) if self.kind == "single" else Net(self.kind).double()

    def dataset(self, split):
        return Rows(30 if split == "train" else 11, self.kind == "single")

    def collate(self, samples):
        x, terms, names = zip(*samples)
        return Record(torch.stack(x), torch.tensor(terms), list(names))

    def loss(self, model, batch):
        assert type(batch) is Record and len(batch.names) == len(batch.x)
        squares = (5 * model(batch.x) - 3).square()
        return (batch.terms * squares).sum(), batch.terms.sum()


class InPieces(Terms):
    # Several forward passes, of which the first is by the parts of the model.
    def loss(self, model, batch):
        out = [model.head(torch.tanh(model.one(batch.x[:1]) + model.two(batch.x[:1])))[:, 0]]
        out += [model(x[None]) for x in batch.x[1:]]
        return (batch.terms * (5 * torch.cat(out) - 3).square()).sum(), batch.terms.sum()


class Grouped(Terms):
    # Two groups with rates of their own. The gradients of the rest are neither used nor clipped.
    def optimizer(self, model, lr):
        groups = [{"params": [model.head.weight]}, {"params": [model.head.bias], "lr": lr / 4}]
        return torch.optim.SGD(groups, lr=3 * lr, momentum=0.9)
