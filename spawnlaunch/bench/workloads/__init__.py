"""The bundled workloads: the measure and the unit of each.

For each of them a module here has a function of its name, which returns the values of its series on
this rank, in a fresh process that is bound as the arm says. It is imported late, with torch.
"""

from importlib import import_module
from typing import Any, NamedTuple


class Workload(NamedTuple):
    """A bundled workload, or the user's command."""

    name: str
    unit: str
    higher_is_better: bool
    about: str
    together: bool = False  # in each step the ranks wait for each other


COMMAND = "command"  # the workload that is the user's own

BUNDLED = (
    Workload("compute", "GFLOP/s", True, "matrix products that stay in the caches"),
    Workload("triad", "GB/s", True, "memory bandwidth: a = b + s * c, as in STREAM"),
    Workload("copies", "GB/s", True, "to and from the device, pinned and pageable (CUDA, ROCm)"),
    Workload("launches", "launches/s", True, "starts of kernels (CUDA, ROCm)"),
    Workload("latency", "us", False, "a copy of 4 bytes to the device and back (CUDA, ROCm)"),
    Workload(
        "allreduce", "GB/s", True, "bus bandwidth of all-reduce, by the size of the message", True
    ),
    Workload("allgather", "GB/s", True, "bus bandwidth of all-gather, by size", True),
    Workload("reducescatter", "GB/s", True, "bus bandwidth of reduce-scatter, by size", True),
    Workload("loader", "samples/s", True, "a DataLoader that decompresses samples"),
    Workload("loader-pinned", "samples/s", True, "the same, pinned, to the device (CUDA, ROCm)"),
    Workload("train", "steps/s", True, "a step of the bundled training loop", True),
    Workload("jitter", "us", False, "the longest gap in a spinning loop"),
)
NAMES = {workload.name: workload for workload in BUNDLED}
DEFAULT = tuple(
    name for name in NAMES if name not in ("allgather", "reducescatter", "loader-pinned")
)
ONLY_ON_DEVICES = frozenset({"copies", "launches", "latency", "loader-pinned"})
COLLECTIVES = ("allreduce", "allgather", "reducescatter")
ON_DEVICES = ONLY_ON_DEVICES | {*COLLECTIVES, "train"}  # the others compute on the CPU
NO_DEVICE = "PyTorch sees no CUDA or ROCm device of its own for each rank"
MODULES = {
    **dict.fromkeys(("compute", "triad", "jitter"), "cpu"),
    **dict.fromkeys((*ONLY_ON_DEVICES, *COLLECTIVES), "device"),
    **dict.fromkeys(("loader", "loader-pinned", "train"), "training"),
}
HELP = "\n".join(f"  {each.name:13} {each.about}, {each.unit}" for each in BUNDLED)


def on(workload: Workload, has_devices: bool) -> Workload:
    """Return the workload with a note on the messages that are left out here."""
    if workload.name not in COLLECTIVES:
        return workload
    large = "up to 1 GiB, where a device has eight times that"
    small = "up to 4 MiB; 64 MiB and 1 GiB are left out, for which CPUs take too long"
    return workload._replace(about=f"{workload.about}: {large if has_devices else small}")


def measure_of(name: str) -> Any:
    """The function that measures a bundled workload on a rank."""
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name.replace("-", "_"))


def missing(name: str, ranks: int, has_devices: bool) -> str:
    """The reason why a bundled workload cannot run; empty if it can."""
    if name in ONLY_ON_DEVICES and not has_devices:
        return NO_DEVICE
    return "there is one rank" if name in COLLECTIVES and ranks == 1 else ""
