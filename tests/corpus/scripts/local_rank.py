"""The local rank is an argument, --local-rank or --local_rank, or from the environment.

Source: PyTorch's documentation, torch.distributed, "Launch utility"
"""

import argparse
import os

import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument(
    "--local-rank", "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1))
)
parser.add_argument("--typed", nargs="*", default=[])
arguments = parser.parse_args()
dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} local rank {arguments.local_rank} typed {arguments.typed}")
dist.destroy_process_group()
