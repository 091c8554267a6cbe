"""The bundled workloads: what each measures, and in which unit.

A module here has `missing(gang)`, why it cannot run, or None; and `measure(gang)`, the values of
its series on this rank, in a fresh process that sits where the arm says.
"""

from importlib import import_module
from typing import Any, NamedTuple


class Workload(NamedTuple):
    """A bundled workload, or the user's command."""

    name: str
    unit: str
    higher_is_better: bool
    about: str


BUNDLED = (
    Workload("compute", "GFLOP/s", True, "matrix products that stay in the caches"),
    Workload("triad", "GB/s", True, "memory bandwidth: a = b + s * c, as in STREAM"),
    Workload("copies", "GB/s", True, "to and from the device, pinned and pageable (CUDA, ROCm)"),
    Workload("allreduce", "GB/s", True, "bus bandwidth of all-reduce, by the size of the message"),
    Workload("loader", "samples/s", True, "a DataLoader that decompresses samples"),
    Workload("train", "steps/s", True, "a step of the bundled training loop"),
    Workload("jitter", "us", False, "the longest gap in a spinning loop"),
)
NAMES = {workload.name: workload for workload in BUNDLED}
ON_DEVICES = frozenset({"copies", "allreduce", "train"})  # the others compute on the CPU
HELP = "\n".join(f"  {each.name:11} {each.about}, {each.unit}" for each in BUNDLED)


def module_of(name: str) -> Any:
    """The module of a bundled workload."""
    return import_module(f"{__name__}.{name}")
