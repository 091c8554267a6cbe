"""Objects, metrics, a store of one's own, a barrier that names who is missing; stdin for rank 0.

Source: PyTorch's documentation, torch.distributed, "Collective functions", "Distributed Key-Value
Store" and "Monitored Barrier"
"""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
server = dist.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False) if rank == 0 else None
told = [server.port, sys.stdin.read().split()] if server else [None, None]
dist.broadcast_object_list(told, src=0)
print(f"rank {rank} hears {told[1]}")
store = server or dist.TCPStore("127.0.0.1", told[0], size, False)
store.set(f"name {rank}", f"worker {rank}")
store.wait([f"name {each}" for each in range(size)])
print(f"rank {rank} reads {[store.get(f'name {each}').decode() for each in range(size)]}")
parts = [None] * size
dist.all_gather_object(parts, {"rank": rank, "local": int(os.environ["LOCAL_RANK"])})
meter = torch.tensor([rank + 1.0, 10.0])
dist.all_reduce(meter, async_op=True).wait()
print(f"rank {rank} has {parts} and mean {(meter[0] / meter[1]).item():.4f}")
dist.monitored_barrier()
if rank == 0:
    try:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))
    except RuntimeError as error:
        print(f"it names rank 1: {'Rank 1 failed' in str(error)}")
    open("seen", "w").close()
while not os.path.exists("seen"):
    time.sleep(0.01)
del store, server
dist.destroy_process_group()
