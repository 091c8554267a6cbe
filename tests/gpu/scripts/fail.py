"""Rank 0 ends by a fault of the device: `fail.py kernel` or `fail.py memory`."""

import os
import sys
import time

import torch

torch.cuda.set_device(0)
held = torch.ones(1 << 28, device="cuda")  # what must not stay there
if os.environ["RANK"] != "0":
    time.sleep(600)
if sys.argv[1] == "memory":
    torch.empty(1 << 50, device="cuda")
indices = torch.full((1,), 1 << 40, device="cuda")
held[indices] += 1  # an assertion in the kernel
torch.cuda.synchronize()
