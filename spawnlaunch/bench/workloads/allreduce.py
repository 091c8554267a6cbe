"""All-reduce by the size of the message, over NCCL or RCCL where each rank has a device, else gloo.

Bus bandwidth is that of the tests of NCCL (nccl-tests, doc/PERFORMANCE.md): 2 (n - 1) / n times
the bytes by the time, which can be compared with the links whatever the number of ranks n.
"""

import torch
import torch.distributed as dist

from spawnlaunch.bench.gang import Gang, steps_together_per_second

SIZES = {"4 KiB": 2**12, "256 KiB": 2**18, "4 MiB": 2**22}
SIZES_ON_DEVICES = {**SIZES, "64 MiB": 2**26}


def missing(gang: Gang) -> str | None:
    return None if gang.size > 1 else "there is one rank"


def measure(gang: Gang) -> dict[str, float]:
    """GB/s for each size; the time is shared out among the sizes."""
    sizes = SIZES if gang.device.type == "cpu" else SIZES_ON_DEVICES
    part = gang._replace(seconds=gang.seconds / len(sizes))
    rates = {}
    for name, size in sizes.items():
        message = torch.zeros(size // 4, device=gang.device)
        rate = steps_together_per_second(part, lambda message=message: dist.all_reduce(message))  # type: ignore[misc]
        rates[name] = rate * size * 2 * (gang.size - 1) / gang.size / 1e9
    return rates
