"""Tensors go round a ring from rank to rank, and are summed on the way.

Source: pytorch/tutorials, intermediate_source/dist_tuto.rst, "Our own ring-allreduce"
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
own = torch.arange(6.0) * (rank + 1)
total, sent = own.clone(), own.clone()
received = torch.zeros_like(own)
for step in range(size - 1):
    operations = [
        dist.P2POp(dist.isend, sent, (rank + 1) % size),
        dist.P2POp(dist.irecv, received, (rank - 1) % size),
    ]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    total += received
    sent = received.clone()
    print(f"rank {rank} step {step} has {received.tolist()}")
print(f"final rank {rank} {total.tolist()}")
dist.destroy_process_group()
