"""Holds two GiB of its device, and says which process it is; ends when it is told to."""

import os
import signal

import torch

held = torch.ones(1 << 29, device="cuda")
torch.cuda.synchronize()
print(os.getpid(), flush=True)
signal.pause()
