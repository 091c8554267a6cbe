"""Prove the ranks: the sum over all workers of 2**rank is known only where every rank is unique."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
proof = torch.tensor([2.0 ** dist.get_rank()], dtype=torch.float64)
dist.all_reduce(proof)
assert proof.item() == 2.0 ** dist.get_world_size() - 1
sys.stdout.write(f"rank {os.environ['RANK']} of {dist.get_world_size()}: sum {proof.item():.0f}\n")
dist.destroy_process_group()
