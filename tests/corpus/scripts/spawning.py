"""Rank 0 starts another world of its own by torch.multiprocessing.spawn.

Source: PyTorch's documentation, torch.multiprocessing, "Spawning subprocesses"
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def inner(rank, queue, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    value = torch.tensor([rank + 1])
    dist.all_reduce(value)
    queue.put((rank, value.item(), os.environ["RANK"]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        queue = mp.get_context("spawn").SimpleQueue()
        rendezvous = Path("rendezvous").resolve()
        mp.spawn(inner, (queue, rendezvous), nprocs=2)
        rendezvous.unlink(missing_ok=True)  # the last of two that leave deletes it, most times
        print(f"rank 0 has {sorted(queue.get() for _ in range(2))}")
    value = torch.tensor([10])
    dist.all_reduce(value)
    print(f"rank {dist.get_rank()} {value.item()}")
    dist.destroy_process_group()
