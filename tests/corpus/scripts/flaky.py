"""All workers fail until the third attempt.

Source: PyTorch's documentation, torchrun, "Fault-tolerant" (docs/source/elastic/run.rst)
"""

import os
import sys

import torch.distributed as dist

attempt, most = (os.environ[f"TORCHELASTIC_{name}"] for name in ("RESTART_COUNT", "MAX_RESTARTS"))
dist.init_process_group("gloo")
rank = dist.get_rank()
print(f"rank {rank} attempt {attempt} of {most}", flush=True)
dist.barrier()
dist.destroy_process_group()
if int(attempt) < 2:
    sys.exit(1)
print(f"final rank {rank} attempt {attempt}")
