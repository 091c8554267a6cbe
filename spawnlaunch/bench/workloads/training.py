"""Workloads of training: reading samples, and a step of the bundled loop."""

import itertools
import zlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from spawnlaunch.bench.workloads import timing
from spawnlaunch.train import commandline, distributed
from spawnlaunch.train.tasks import language
from spawnlaunch.train.trainer import Trainer

SHAPE = (3, 128, 128)
BATCH = 16


class Compressed(Dataset[Tensor]):
    """Samples of shape SHAPE, float32, each decompressed when it is read."""

    def __init__(self) -> None:
        numbers = torch.arange(SHAPE[0] * SHAPE[1] * SHAPE[2]) // 7 % 251
        self.packed = zlib.compress(bytes(numbers.to(torch.uint8).tolist()))

    def __len__(self) -> int:
        return 2**20  # more than are read while it is timed

    def __getitem__(self, _index: int) -> Tensor:
        pixels = torch.frombuffer(bytearray(zlib.decompress(self.packed)), dtype=torch.uint8)
        return pixels.reshape(SHAPE).float().div_(255.0)


def loader(rank: timing.Rank) -> dict[str, float]:
    """Samples per second of a DataLoader in which workers decompress them, as they would images.

    There is a worker for each thread of the rank, unless its arm has another number; they inherit
    its binding.
    """
    batches = _batches(rank, pinned=False)
    return {"": BATCH * timing.steps_per_second(rank, lambda: next(batches))}


def loader_pinned(rank: timing.Rank) -> dict[str, float]:
    """Samples per second of the same loader with pinned memory, copied to the device."""
    batches = _batches(rank, pinned=rank.device.type == "cuda")

    def step() -> Tensor:
        return next(batches).to(rank.device, non_blocking=True)

    return {"": BATCH * timing.steps_per_second(rank, step)}


def _batches(rank: timing.Rank, *, pinned: bool) -> Iterator[Tensor]:
    """Batches of a loader without the first ones, which its workers prepare before the timing."""
    workers = rank.loader_workers
    data = DataLoader(Compressed(), BATCH, num_workers=workers, pin_memory=pinned)
    batches: Iterator[Tensor] = iter(data)
    for _ in range(workers * data.prefetch_factor if data.prefetch_factor else 0):
        next(batches)
    return batches


def train(rank: timing.Rank) -> dict[str, float]:
    """Steps per second of the bundled loop: forward, backward, gradients of all ranks, update."""
    config, _ = commandline.parse([])
    task = language.Language()
    world = distributed.World(rank.rank, rank.size, rank.local_rank, rank.local_size)
    trainer = Trainer(task, config, world, rank.device, config.batch_size)
    samples = task.dataset("train")
    pairs = [samples[rank.rank * config.batch_size + i] for i in range(config.batch_size)]
    batch = tuple(torch.stack(part).to(rank.device) for part in zip(*pairs, strict=True))
    batches = itertools.repeat(batch)

    def step() -> None:
        trainer.train_step(batches, wants_stop=False)

    return {"": timing.steps_together_per_second(rank, step)}
