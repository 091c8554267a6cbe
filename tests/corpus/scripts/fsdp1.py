"""FullyShardedDataParallel with a policy that wraps by size, and a full state on rank 0.

Source: pytorch/tutorials, intermediate_source/FSDP1_tutorial.rst
"""

import functools
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100)
model = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
torch.manual_seed(rank)
for epoch in range(3):
    summed = torch.zeros(2)
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16)).square().sum()
        loss.backward()
        optimizer.step()
        summed += torch.tensor([loss.item(), 8])
    dist.all_reduce(summed)
    if rank == 0:
        print(f"Train Epoch: {epoch} Loss: {(summed[0] / summed[1]).item():.6f}")
config = FullStateDictConfig(rank0_only=True)
with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
    state = model.state_dict()
for name, value in state.items():
    print(f"rank {rank} {name} {tuple(value.shape)} {value.sum().item():.5f}")
del model
dist.destroy_process_group()
