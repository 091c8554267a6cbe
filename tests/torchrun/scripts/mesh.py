"""A mesh of two dimensions: tensor parallel in a row, fully_shard over the columns; and groups.

A model so sharded is saved by torch.distributed.checkpoint, and loaded into another one.
Sources: pytorch/examples, distributed/tensor_parallelism/fsdp_tp_example.py; NVIDIA/Megatron-LM,
megatron/core/parallel_state.py, initialize_model_parallel; pytorch/tutorials, recipes_source/
distributed_checkpoint_recipe.rst
"""

import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


def made(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    return model, torch.optim.Adam(model.parameters(), lr=0.05)


def step(model, optimizer):
    torch.manual_seed(mesh["dp"].get_local_rank())  # one batch for a row of the mesh
    loss = model(torch.rand(8, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return round(loss.item(), 6)


mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
rank = dist.get_rank()
first, second = made(0), made(1)
print(f"rank {rank} losses {step(*first)} {step(*second)}")
weights, moments = get_state_dict(*first)
dcp.save({"model": weights, "optim": moments}, checkpoint_id="checkpoint")
weights, moments = get_state_dict(*second)
dcp.load({"model": weights, "optim": moments}, checkpoint_id="checkpoint")
set_state_dict(*second, model_state_dict=weights, optim_state_dict=moments)
print(f"rank {rank} losses {step(*first)} {step(*second)} {first[0][0].weight.to_local().shape}")
for members in ([0], [1], [0, 1]):
    group = dist.new_group(members)  # which all ranks must call
    if rank in members:
        value = torch.tensor([10.0**rank])
        dist.all_reduce(value, group=group)
        print(f"rank {rank} {dist.get_process_group_ranks(group)} {value.item():.0f}")
dist.barrier()
if rank == 0:
    shutil.rmtree("checkpoint")  # each save has a random id in it
dist.destroy_process_group()
