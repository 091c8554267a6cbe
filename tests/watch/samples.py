"""Samples as tests need them: of ranks that are alike, but for what a test is about."""

from collections.abc import Sequence
from typing import Any

from spawnlaunch.watch.device_use import DeviceUse
from spawnlaunch.watch.progress import Progress
from spawnlaunch.watch.usage import Sample


def sample(rank: int = 0, **other: Any) -> Sample:
    """A rank that does nothing in particular."""
    usual: dict[str, Any] = {
        "time": 1000.0, "host": "node0", "launch": "spawnlaunch-7-abc", "job": "7.0",
        "starter": "spawnlaunch",
        "rank": rank, "local_rank": rank, "world_size": 4, "pid": 100 + rank, "start": 1000,
        "command": "python -u train.py", "state": "sleeping", "held": None, "cpu": 0.5,
        "cpu_seconds": 10.0,
        "cpus": str(rank), "elsewhere": "", "memory": 1 << 30, "peak": 1 << 30,
        "memory_below": 0, "threads": 3, "processes": 0, "reads": 0.0, "writes": 0.0,
        "quiet_s": 1.0, "output_at": 50.0, "device": None, "progress": None,
    }  # fmt: skip
    return Sample(**{**usual, **other})


def progress(**other: Any) -> Progress:
    """Of a rank of the loop that makes ten steps a second."""
    usual: dict[str, Any] = {
        "phase": "compute", "step": 100, "steps": 1000, "at": 50.0, "first_collective": 900.0,
        "loss": 2.0, "rate": 80.0, "data_s": 0.01, "compute_s": 0.08, "wait_s": 0.01,
    }  # fmt: skip
    return Progress(**{**usual, **other})


def device(number: int, **figures: Any) -> DeviceUse:
    """A device of NVIDIA's."""
    return DeviceUse(number, f"0000:{number + 1:02x}:00.0", "nvidia", **figures)


def over_time(rank: int, memories: Sequence[int], **other: Any) -> list[Sample]:
    """Looks at a rank, a second apart, with these sizes in MiB."""
    return [
        sample(rank, time=1000.0 + i, memory=mib << 20, cpu_seconds=10.0 + 0.5 * i, **other)
        for i, mib in enumerate(memories)
    ]
