"""The local rank is an argument, --local-rank or --local_rank, or from the environment.

Source: PyTorch's documentation, torch.distributed, "Launch utility"
"""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument(
    "--local-rank", "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1))
)
parser.add_argument("--typed", nargs="*", default=[])
arguments = parser.parse_args()
print(f"rank {os.environ['RANK']} has {arguments.local_rank} and {arguments.typed}")
