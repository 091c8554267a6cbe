"""Sum up one number over all ranks, and print the time: a worker of several benchmarks.

With FAIL_ONCE set, rank 1 then dies in the first attempt, and prints the time; with REDUCE_ON the
ranks go on.
"""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
number = torch.ones(1)
dist.all_reduce(number)
if number.item() != dist.get_world_size():
    raise ValueError(f"the sum of {dist.get_world_size()} ones is {number.item()}")
restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
os.write(1, f"reduced {restarts} {time.monotonic()}\n".encode())
if os.environ.get("FAIL_ONCE") and restarts == 0:
    time.sleep(1)  # all have printed by now
    if dist.get_rank() == 1:
        os.write(1, f"dies {time.monotonic()}\n".encode())
        os._exit(7)
    time.sleep(600)
while os.environ.get("REDUCE_ON"):
    dist.all_reduce(number)
dist.destroy_process_group()
