"""A model in DistributedDataParallel is compiled, without a compiler of C++.

Source: PyTorch's documentation, torch.compiler FAQ, "DDP"
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
ddp = DistributedDataParallel(model)
compiled = torch.compile(ddp, backend="aot_eager")
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    optimizer.zero_grad()
    loss = compiled(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.5f}")
print(f"final rank {rank} {model[0].weight.sum().item():.5f}")
del compiled, ddp
dist.destroy_process_group()
