"""Plain DistributedDataParallel with a DistributedSampler."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # DistributedDataParallel makes the weights equal
x = torch.linspace(-1, 1, 64).unsqueeze(1)
dataset = TensorDataset(x, 3 * x + 1)
sampler = DistributedSampler(dataset)
model = DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for inputs, targets in DataLoader(dataset, batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
weight = model.module.weight.item()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {len(sampler)} samples, weight {weight}")
del model  # before its group: else gloo may hang or abort at the end
dist.destroy_process_group()
