"""A task of which rank 1 is slow, rank 2 leaks, and rank 3 hangs once a file is there."""

import os
import time

import torch
import torch.nn.functional as F

RANK = int(os.environ.get("RANK", 0))
MOST = 1000  # MiB that are lost at most


class Troubled:
    """Learns whether a number is above 0."""

    def __init__(self, hangs: str = "") -> None:
        self.hangs = hangs
        self.lost: list[bytearray] = []

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(1, 2)

    def dataset(self, split: str) -> list[tuple[torch.Tensor, int]]:
        numbers = torch.linspace(-1, 1, 1001 if split == "train" else 101)
        return [(number[None], int(number > 0)) for number in numbers]

    def loss(
        self, model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, int]:
        numbers, answers = batch
        time.sleep(0.3 if RANK == 1 else 0.1)
        if RANK == 2 and len(self.lost) < MOST:
            self.lost.append(bytearray(b"x" * (1 << 20)))
        while RANK == 3 and os.path.exists(self.hangs):
            self.hang()
        return F.cross_entropy(model(numbers), answers, reduction="sum"), len(answers)

    def hang(self) -> None:
        time.sleep(0.1)
