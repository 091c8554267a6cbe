"""Parameters without a gradient in a step, buffers that rank 0 gives to all, a static graph.

Source: PyTorch's documentation, torch.nn.parallel.DistributedDataParallel
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.branches = torch.nn.ModuleList([torch.nn.Linear(4, 1) for _ in range(2)])

    def forward(self, x, which):
        return self.branches[which](self.norm(x))


dist.init_process_group("gloo")
rank = dist.get_rank()
for static in (False, True):
    torch.manual_seed(rank)
    model = DistributedDataParallel(
        Branches(), find_unused_parameters=not static, static_graph=static
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 4) + rank, 0 if static else step % 2).square().mean().backward()
        optimizer.step()
    sums = [round(branch.weight.sum().item(), 5) for branch in model.module.branches]
    mean = model.module.norm.running_mean.sum().item()
    print(f"final rank {rank} static {static} {sums} {mean:.5f}")
    del model
dist.destroy_process_group()
