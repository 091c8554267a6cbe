"""A TCPStore of one's own beside that of the process group: a counter, a wait, a compare_set.

Source: PyTorch's documentation, torch.distributed, "Distributed Key-Value Store"
"""

import os

import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
server = dist.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False) if rank == 0 else None
told = [server.port if server else None]
dist.broadcast_object_list(told, src=0)
store = server or dist.TCPStore("127.0.0.1", told[0], size, False)
store.set(f"name {rank}", f"worker {rank}")
store.wait([f"name {n}" for n in range(size)])
print(f"rank {rank} reads {[store.get(f'name {n}').decode() for n in range(size)]}")
store.add("count", rank + 1)
dist.barrier()
print(f"rank {rank} counts {store.add('count', 0)}")
first = store.compare_set("first", "", f"{rank}").decode() == f"{rank}"
firsts = [None] * size
dist.all_gather_object(firsts, first)
print(f"final rank {rank} of whom first were {sum(firsts)}")
dist.barrier()
del store, server
dist.destroy_process_group()
