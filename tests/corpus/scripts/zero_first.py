"""The first rank of a node prepares the data while the others wait, then all read it.

Source: ultralytics/yolov5, utils/torch_utils.py, torch_distributed_zero_first
"""

import contextlib
import os
import time

import torch.distributed as dist

LOCAL_RANK = int(os.getenv("LOCAL_RANK", -1))
RANK = int(os.getenv("RANK", -1))
WORLD_SIZE = int(os.getenv("WORLD_SIZE", 1))


@contextlib.contextmanager
def torch_distributed_zero_first(local_rank):
    if local_rank not in (-1, 0):
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()


dist.init_process_group("gloo")
with torch_distributed_zero_first(LOCAL_RANK):
    was_there = os.path.exists("labels.cache")
    if not was_there:
        time.sleep(0.1)
        with open("labels.cache", "w") as file:
            file.write("".join(f"{n}\n" for n in range(5)))
print(f"rank {RANK} of {WORLD_SIZE} found it {was_there}")
with open("labels.cache") as file:
    print(f"rank {RANK} reads {file.read().split()}")
dist.destroy_process_group()
