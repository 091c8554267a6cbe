import gc

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class EnoughError(BaseException):
    pass


class Quits:
    def __init__(self, how="text"):
        self.how = how

    def model(self):
        return torch.nn.Linear(1, 1)

    def dataset(self, split):
        return torch.ones(8, 1)

    def loss(self, model, batch):
        if self.how == "error" and model.training:
            raise EnoughError("it is enough")
        if self.how != "stays" and model.training:
            raise SystemExit({"text": "it is enough", "number": 3}[self.how])
        return model(batch).square().sum(), len(batch)

    def sample(self, model, seed):
        wrappers = [one for one in gc.get_objects() if isinstance(one, DistributedDataParallel)]
        return f"{len(wrappers)} wrappers, a group: {dist.is_initialized()}"
