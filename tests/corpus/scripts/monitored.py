"""monitored_barrier says which rank has not come.

Source: PyTorch's documentation, torch.distributed, "Monitored Barrier"
"""

import datetime
import os
import time

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.monitored_barrier()
print(f"rank {rank} is through")
if rank == 0:
    try:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))
    except RuntimeError as error:
        print(f"it names rank 1: {'Rank 1 failed' in str(error)}")
    open("seen", "w").close()
while not os.path.exists("seen"):
    time.sleep(0.01)
dist.destroy_process_group()
