"""utils.init_distributed_mode of image models: print is silent but on rank 0, meters are summed.

Source: pytorch/vision, references/classification/utils.py
"""

import argparse
import builtins
import datetime
import os

import torch
import torch.distributed as dist


def setup_for_distributed(is_master):
    builtin_print = builtins.print

    def print_(*args, **kwargs):
        if kwargs.pop("force", False) or is_master:
            builtin_print(*args, **kwargs)

    builtins.print = print_


def init_distributed_mode(args):
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        args.rank, args.gpu = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        args.world_size = int(os.environ["WORLD_SIZE"])
    elif "SLURM_PROCID" in os.environ:
        raise SystemExit("no rank")
    args.distributed = True
    print(f"| distributed init (rank {args.rank}): {args.dist_url}", flush=True)
    dist.init_process_group(
        "gloo",
        init_method=args.dist_url,
        world_size=args.world_size,
        rank=args.rank,
        timeout=datetime.timedelta(minutes=30),
    )
    dist.barrier()
    setup_for_distributed(args.rank == 0)


parser = argparse.ArgumentParser()
parser.add_argument("--dist-url", default="env://")
args = parser.parse_args()
init_distributed_mode(args)
meter = torch.tensor([args.rank + 1.0, 10.0], dtype=torch.float64)
dist.barrier()
dist.all_reduce(meter)
print(f"final mean {meter[0] / meter[1]:.6f} of {args.world_size}")
print(f"final said by all: {args.gpu}", force=True)
dist.destroy_process_group()
