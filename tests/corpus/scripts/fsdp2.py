"""Each layer of a model is sharded by fully_shard; its gradients are clipped over all shards.

Source: pytorch/examples, distributed/FSDP2/example.py
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
layers = [torch.nn.Linear(16, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)]
model = torch.nn.Sequential(*layers)
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(rank)
for step in range(5):
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0).full_tensor()
    optimizer.step()
    optimizer.zero_grad()
    print(f"rank {rank} step {step} loss {loss.item():.6f} norm {norm.item():.6f}")
weight = layers[0].weight
print(f"final rank {rank} {tuple(weight.to_local().shape)} {weight.full_tensor().sum().item():.5f}")
dist.destroy_process_group()
