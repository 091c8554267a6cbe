"""From a task's samples to batches on the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from .task import Samples


def batches(
    samples: Samples, batch_indices: Iterable[list[int]], device: torch.device
) -> Iterator[Any]:
    """The samples named by each list of indices, collated and moved to ``device``."""
    on_gpu = device.type == "cuda"
    loader: DataLoader[Any] = DataLoader(
        cast(Any, samples), batch_sampler=cast(Any, batch_indices), pin_memory=on_gpu
    )
    for batch in loader:
        yield to_device(batch, device)


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on ``device``; lists, tuples and dicts are looked into."""
    if isinstance(batch, Tensor):
        # From pinned memory the copy runs beside the computation that is already queued.
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(value, device) for value in batch)
    return batch
