"""A mesh of two by two: tensor parallel within a row, fully_shard over the columns.

Source: pytorch/examples, distributed/tensor_parallelism/fsdp_tp_example.py
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
dp, tp = mesh["dp"].get_local_rank(), mesh["tp"].get_local_rank()
for step in range(4):
    torch.manual_seed(10 * step + dp)  # the same batch for a row of the mesh
    loss = model(torch.rand(8, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"dp {dp} tp {tp} step {step} loss {loss.item():.6f}")
print(f"rank {dist.get_rank()} {tuple(model[0].weight.to_local().shape)}")
dist.destroy_process_group()
