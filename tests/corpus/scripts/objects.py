"""Objects of Python are broadcast, scattered and gathered.

Source: PyTorch's documentation, torch.distributed, "Collective functions"
"""

import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
told = [{"lr": 0.1, "name": "run"}, None] if rank == 0 else [None, None]
dist.broadcast_object_list(told, src=0)
mine = [None]
dist.scatter_object_list(mine, [f"part {n}" for n in range(size)] if rank == 0 else None, src=0)
gathered = [None] * size
dist.all_gather_object(gathered, (rank, mine[0], set("ab")))
print(f"final rank {rank} {told} {mine} {[(n, part, sorted(s)) for n, part, s in gathered]}")
on_0 = [None] * size if rank == 0 else None
dist.gather_object({"rank": rank}, on_0, dst=0)
print(f"final rank {rank} gathered {on_0}")
dist.destroy_process_group()
