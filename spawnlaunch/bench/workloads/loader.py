"""A DataLoader whose workers decompress samples, as reading images does; they inherit the seat."""

import itertools
import zlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from spawnlaunch.bench.gang import Gang, steps_per_second

SHAPE = (3, 128, 128)
BATCH = 16
MOST_WORKERS = 8


class Compressed(Dataset[Tensor]):
    """Samples of shape SHAPE, float32, each decompressed anew."""

    def __init__(self) -> None:
        numbers = torch.arange(SHAPE[0] * SHAPE[1] * SHAPE[2]) // 7 % 251
        self.packed = zlib.compress(bytes(numbers.to(torch.uint8).tolist()))

    def __len__(self) -> int:
        return 2**20  # more than are read while it is timed

    def __getitem__(self, _index: int) -> Tensor:
        pixels = torch.frombuffer(bytearray(zlib.decompress(self.packed)), dtype=torch.uint8)
        return pixels.reshape(SHAPE).float().div_(255.0)


def missing(_gang: Gang) -> str | None:
    return None


def measure(gang: Gang) -> dict[str, float]:
    """Samples per second of this rank, with a worker for each of its threads."""
    workers = min(gang.threads, MOST_WORKERS)
    loader = DataLoader(Compressed(), BATCH, num_workers=workers)
    batches: Iterator[Tensor] = iter(loader)
    queued = workers * loader.prefetch_factor if loader.prefetch_factor else 0
    for _ in itertools.repeat(None, queued):  # what the workers have ready says nothing
        next(batches)
    return {"": BATCH * steps_per_second(gang, lambda: next(batches))}
