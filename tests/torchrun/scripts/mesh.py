"""Four ranks in a mesh: tensor parallel in a row, fully_shard over the columns; and in groups.

Sources: pytorch/examples, distributed/tensor_parallelism/fsdp_tp_example.py; NVIDIA/Megatron-LM,
megatron/core/parallel_state.py, initialize_model_parallel
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
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(3):
    torch.manual_seed(10 * step + mesh["dp"].get_local_rank())  # one batch for a row of the mesh
    loss = model(torch.rand(8, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"rank {rank} step {step} loss {loss.item():.6f}")
print(f"rank {rank} has {tuple(model[0].weight.to_local().shape)}")
for members in ([0, 1], [2, 3], [0, 3]):
    group = dist.new_group(members)  # which all ranks must call
    if rank in members:
        value = torch.tensor([10.0**rank])
        dist.all_reduce(value, group=group)
        print(f"rank {rank} {dist.get_process_group_ranks(group)} {value.item():.0f}")
dist.destroy_process_group()
