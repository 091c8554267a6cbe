"""Adds up one number per rank: `reduce.py BACKEND DEVICE [ROUNDS]`; the device "own" is its own."""

import json
import os
import sys

import torch
import torch.distributed as dist

backend, name = sys.argv[1:3]
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if name == "own" else name
if str(device).startswith("cuda"):
    torch.cuda.set_device(device)
dist.init_process_group(backend)
values = torch.zeros(1 << 20, device=device)
for _ in range(rounds):
    values.fill_(rank + 1)
    dist.all_reduce(values)
    total = values.sum().item() / values.numel()
    assert total == size * (size + 1) / 2, total
    if rounds > 1 and rank == 0:
        print("round", flush=True)
print(json.dumps({"rank": rank, "total": total}))
dist.destroy_process_group()
