"""Prove the ranks, and report: the sum of 2**rank over all workers, and what torch draws.

The sum is 2**world_size - 1 only where every rank from 0 is there once.
"""

import torch
import torch.distributed as dist

from tests.workers.reporting import report

dist.init_process_group("gloo")
total = torch.tensor([2.0 ** dist.get_rank()], dtype=torch.float64)
dist.all_reduce(total)
report(
    proved=total.item() == 2.0 ** dist.get_world_size() - 1,
    drawn=torch.rand(1).item(),
)
dist.destroy_process_group()
