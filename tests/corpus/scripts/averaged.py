"""Gradients are averaged by hand, with one all_reduce for each parameter.

Source: pytorch/tutorials, intermediate_source/dist_tuto.rst, average_gradients
"""

import os

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=size)
torch.manual_seed(1234)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
data = torch.randn(64, 4).chunk(size)[rank]
for epoch in range(5):
    total = 0.0
    for batch in data.split(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), (batch[:, 0] > 0).long())
        total += loss.item()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= size
        optimizer.step()
    print(f"rank {rank}, epoch {epoch}: {total / 4:.6f}")
print(f"final rank {rank} {[round(w, 6) for w in model.weight.flatten().tolist()]}")
dist.destroy_process_group()
