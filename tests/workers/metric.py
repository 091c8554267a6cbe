"""A command to be measured: rank 0 prints a number that depends on how many CPUs it may use."""

import json
import os

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    print("not JSON")
    print(json.dumps({"speed": 1.0}))
    print(json.dumps({"speed": 10.0 * len(os.sched_getaffinity(0)), "more": "words"}))
dist.destroy_process_group()
