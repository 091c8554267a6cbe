"""Local steps with the parameters averaged now and then (post-local SGD).

Source: PyTorch's documentation, torch.distributed.optim.PostLocalSGDOptimizer
"""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
group, _ = dist.new_subgroups(1)
state = PostLocalSGDState(process_group=None, subgroup=group, start_localSGD_iter=4)
model.register_comm_hook(state, post_localSGD_hook)
optimizer = PostLocalSGDOptimizer(
    optim=torch.optim.SGD(model.parameters(), lr=0.05),
    averager=PeriodicModelAverager(period=3, warmup_steps=4),
)
torch.manual_seed(rank)
for step in range(12):
    optimizer.zero_grad()
    loss = (model(torch.randn(8, 8)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} weight {model.module.weight.sum().item():.6f}")
print(f"final rank {rank} {model.module.weight.sum().item():.6f}")
del optimizer, model
dist.destroy_process_group()
