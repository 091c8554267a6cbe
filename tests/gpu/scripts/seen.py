"""Says which devices PyTorch shows this worker, and which CPUs it may use."""

import json
import os

import torch

devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
print(
    json.dumps(
        {
            "rank": int(os.environ.get("RANK", "0")),
            "local_rank": int(os.environ.get("LOCAL_RANK", "0")),
            "uuids": [str(each.uuid) for each in devices],
            "cpus": sorted(os.sched_getaffinity(0)),
        }
    )
)
