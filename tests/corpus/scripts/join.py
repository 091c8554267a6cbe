"""Uneven inputs: the rank that has fewer joins in until the other has done.

Source: pytorch/tutorials, advanced_source/generic_join.rst
"""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
inputs = [torch.tensor([1.0]) for _ in range(5 + rank)]
seen = 0
with Join([model, optimizer]):
    for one in inputs:
        seen += 1
        model(one).sum().backward()
        optimizer.step()
print(f"final rank {rank} has seen {seen}, weight {model.module.weight.item():.6f}")
del optimizer, model
dist.destroy_process_group()
