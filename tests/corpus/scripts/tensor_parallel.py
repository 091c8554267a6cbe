"""A feed-forward layer by columns and by rows on a mesh of two.

Source: pytorch/examples, distributed/tensor_parallelism/tensor_parallel_example.py
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 5))
model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, foreach=True)
for step in range(5):
    torch.manual_seed(step)
    loss = model(torch.rand(20, 10)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"rank {mesh.get_rank()} step {step} {loss.item():.5f}")
print(f"final rank {mesh.get_rank()} {tuple(model[0].weight.to_local().shape)} {loss.item():.5f}")
dist.destroy_process_group()
