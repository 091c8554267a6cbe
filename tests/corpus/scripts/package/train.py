"""A module of a package, which imports another of it by a relative name.

Source: pytorch/torchtitan, run_train.sh, torchrun -m torchtitan.train
"""

import os
import sys

import torch
import torch.distributed as dist

from . import __doc__ as about

if __name__ == "__main__":
    dist.init_process_group("gloo")
    value = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(value)
    name = os.path.basename(sys.argv[0])
    print(f"final {dist.get_rank()} {value.item()} {__package__} {name} {sys.argv[1:]} {about}")
    dist.destroy_process_group()
