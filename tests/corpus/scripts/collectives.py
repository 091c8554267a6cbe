"""Each collective that gloo has, once, synchronous and not.

Source: PyTorch's documentation, torch.distributed, "Backends" and "Collective functions"
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def own(length=2):
    return torch.arange(length, dtype=torch.float32) + 10 * rank


def shown(name, tensors):
    tensors = tensors if isinstance(tensors, list) else [tensors]
    print(f"final rank {rank} {name} {[each.tolist() for each in tensors]}")


for name, operation in (("sum", dist.ReduceOp.SUM), ("max", dist.ReduceOp.MAX)):
    value = own()
    dist.all_reduce(value, operation, async_op=True).wait()
    shown(name, value)
value = own()
dist.broadcast(value, src=1)
shown("broadcast", value)
value = [torch.zeros(2) for _ in range(size)]
dist.all_gather(value, own())
shown("all_gather", value)
value = torch.zeros(2)
dist.scatter(value, [own() + n for n in range(size)] if rank == 0 else None, src=0)
shown("scatter", value)
value = [torch.zeros(2) for _ in range(size)] if rank == 1 else None
dist.gather(own(), value, dst=1)
shown("gather", value or [])
value = torch.zeros(2 * size)
dist.all_gather_into_tensor(value, own())
shown("all_gather_into_tensor", value)
value = torch.zeros(2)
dist.reduce_scatter_tensor(value, own(2 * size))
shown("reduce_scatter_tensor", value)
value = torch.zeros(2 * size)
dist.all_to_all_single(value, own(2 * size))
shown("all_to_all_single", value)
dist.destroy_process_group()
