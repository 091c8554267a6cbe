"""A sharded model is saved by torch.distributed.checkpoint, and loaded into another one.

Source: pytorch/tutorials, recipes_source/distributed_checkpoint_recipe.rst
"""

import os
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def made(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return model, optimizer, step(model, optimizer)


def step(model, optimizer):
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
(model, optimizer, _), (model2, optimizer2, _) = made(0), made(1)
weights, moments = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optim": moments}, checkpoint_id="checkpoint")
weights, moments = get_state_dict(model2, optimizer2)
dcp.load({"model": weights, "optim": moments}, checkpoint_id="checkpoint")
set_state_dict(model2, optimizer2, model_state_dict=weights, optim_state_dict=moments)
first, second = step(model, optimizer), step(model2, optimizer2)
print(f"rank {dist.get_rank()} loss {first:.6f} {second:.6f} {sorted(os.listdir('checkpoint'))}")
dist.barrier()
if dist.get_rank() == 0:
    shutil.rmtree("checkpoint")  # each save has a random id in it
dist.destroy_process_group()
