"""Rank 0 reads all of stdin, and tells the others.

Source: Python's documentation, sys.stdin, which torchrun leaves to its workers
"""

import sys

import torch.distributed as dist

dist.init_process_group("gloo")
told = [sys.stdin.read().split() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(told, src=0)
print(f"rank {dist.get_rank()} {told[0]}")
dist.destroy_process_group()
