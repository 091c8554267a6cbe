"""Gradients are sent in half precision by a hook; that of bfloat16 is refused with gloo.

Source: PyTorch's documentation, DDP communication hooks (docs/source/ddp_comm_hooks.md)
"""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
ddp = DistributedDataParallel(torch.nn.Linear(16, 16))
ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(5):
    optimizer.zero_grad()
    loss = ddp(torch.randn(8, 16)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.6f}")
print(f"final rank {rank} {ddp.module.weight.sum().item():.6f}")
del ddp
dist.destroy_process_group()
