"""Functions that workers are given: each does what a function of PyTorch's tests does."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from typing import Any


def nothing() -> None:
    pass


def echo(message: str) -> str:
    return message


def rank_plus_ten() -> int:
    return int(os.environ["RANK"]) + 10


def rank_after(seconds: float) -> int:
    time.sleep(seconds)
    return int(os.environ["RANK"])


def tensor() -> Any:
    import torch

    return torch.rand(100, 100)


def large(size: int) -> dict[int, str]:
    return {number: f"value {number}" for number in range(size)}


def is_launched() -> bool:
    import torch.distributed

    return torch.distributed.is_torchelastic_launched()


def sum_of_ranks() -> Any:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    ranks = torch.tensor(int(os.environ["RANK"]))
    dist.all_reduce(ranks)
    dist.destroy_process_group()
    return ranks.item()


def remote(name: str, message: str) -> str | None:
    """The rank called "master" has the one called "worker" say something."""
    import torch.distributed.rpc as rpc

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rpc.init_rpc(name, rank=rank, world_size=size)
    said = rpc.rpc_sync("worker", echo, (message,)) if name == "master" else None
    rpc.shutdown()
    return said


def fail_in_rank(rank: str, how: str) -> str:
    if os.environ["RANK"] == rank:
        if how == "raise":
            raise RuntimeError("of this rank")
        print("is said before", file=sys.stderr)
        sys.exit(int(how))
    return "well"


def speak(lines: int = 1) -> str:
    """On both streams, from Python, from C and from a program; or many lines on stdout."""
    libc = ctypes.CDLL(None)
    for number in range(lines):
        print(f"stdout of Python {number}")
    sys.stdout.flush()
    for number in range(lines):
        libc.printf(b"stdout of C %d\n", number)
    libc.fflush(None)
    subprocess.run("echo stdout of a program; echo stderr of a program >&2", shell=True, check=True)
    print("stderr of Python", file=sys.stderr)
    libc.dprintf(2, b"stderr of C\n")
    return os.environ["RANK"]
