"""DistributedDataParallel of a toy model, which is told of the world by env://.

Source: pytorch/tutorials, intermediate_source/ddp_tutorial.rst, elastic_ddp.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU(), torch.nn.Linear(10, 5))
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001)
for step in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(ddp(torch.randn(20, 10)), torch.randn(20, 5))
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.6f}")
print(f"final rank {rank} sum {sum(p.sum() for p in model.parameters()).item():.6f}")
del ddp
dist.destroy_process_group()
