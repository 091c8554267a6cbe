"""Copies between the memory of the host and of the device, by all ranks at once.

Pinned memory is what the device can reach by itself; pageable memory goes through a pinned buffer
of the driver, which the CPU fills, so there the seat counts twice.
"""

import torch

from spawnlaunch.bench.gang import Gang, steps_per_second

BYTES = 64 * 2**20


def missing(gang: Gang) -> str | None:
    if gang.device.type == "cuda":
        return None
    return "PyTorch sees no CUDA or ROCm device of its own for each rank"


def measure(gang: Gang) -> dict[str, float]:
    """GB/s of this rank, for each direction and kind of memory."""
    on_device = torch.zeros(BYTES, dtype=torch.uint8, device=gang.device)
    rates = {}
    for kind in ("pinned", "pageable"):
        on_host = torch.zeros(BYTES, dtype=torch.uint8, pin_memory=kind == "pinned")
        for name, to, of in (("to", on_device, on_host), ("from", on_host, on_device)):
            rate = steps_per_second(gang, lambda to=to, of=of: to.copy_(of, non_blocking=True))  # type: ignore[misc]
            rates[f"{name} device, {kind}"] = rate * BYTES / 1e9
    return rates
