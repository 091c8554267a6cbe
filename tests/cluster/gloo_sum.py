"""A step of the tests: sum the ranks over gloo, as env:// wants to be told of them."""

import os
import socket

import torch
import torch.distributed as dist

os.environ["RANK"] = os.environ["SLURM_PROCID"]
os.environ["WORLD_SIZE"] = os.environ["SLURM_STEP_NUM_TASKS"]
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank()])
dist.all_reduce(total)
print(socket.gethostname(), dist.get_rank(), total.item(), flush=True)
dist.destroy_process_group()
