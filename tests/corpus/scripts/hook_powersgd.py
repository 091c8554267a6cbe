"""Gradients are sent as two small matrices (PowerSGD), after some steps as they are.

Source: PyTorch's documentation, DDP communication hooks (docs/source/ddp_comm_hooks.md)
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
ddp = DistributedDataParallel(torch.nn.Linear(24, 24, bias=False))
state = powersgd.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3)
ddp.register_comm_hook(state, powersgd.powerSGD_hook)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(8):
    optimizer.zero_grad()
    loss = ddp(torch.randn(8, 24)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.5f}")
print(f"final rank {rank} {ddp.module.weight.sum().item():.5f} {state.iter}")
del ddp
dist.destroy_process_group()
