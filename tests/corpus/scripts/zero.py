"""ZeroRedundancyOptimizer: each rank keeps the state of its share of the parameters.

Source: pytorch/tutorials, recipes_source/zero_redundancy_optimizer.rst
"""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(20, 20) for _ in range(4)])
ddp = DistributedDataParallel(model)
optimizer = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
for _ in range(3):
    ddp(torch.ones(5, 20) * (rank + 1)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
own = sum(len(group["params"]) for group in optimizer.optim.param_groups)
print(f"final rank {rank} keeps {own}, sum {sum(p.sum() for p in ddp.parameters()).item():.5f}")
optimizer.consolidate_state_dict(to=0)
if rank == 0:
    torch.save(optimizer.state_dict(), "optimizer.pt")
del optimizer, ddp
dist.destroy_process_group()
