"""The kinds of devices that the loop computes on, and what PyTorch calls each. Imports torch late.

A device of any kind has the same functions in a module of its own below torch: torch.cuda,
torch.xpu and so on. PyTorch for ROCm says cuda for AMD's devices, and nccl for RCCL. Only cuda has
ever been run; docs/gpu.md says on what. A TPU has no such module: torch_xla wants a loop of its
own, so the bundled one is not for it.

Sources: `Backend.default_device_backend_map` of torch.distributed; the documentation of torch_npu
(Ascend) and of the Gaudi software ("Distributed Backend Initialization").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


class Kind(NamedTuple):
    """One of them; --device takes its name."""

    name: str  # of PyTorch's device type, and of the module
    backend: str  # of torch.distributed
    extension: str = ""  # the package that adds it to PyTorch, where PyTorch has it not


KINDS = (
    Kind("cuda", "nccl"),
    Kind("xpu", "xccl"),
    Kind("npu", "hccl", "torch_npu"),
    Kind("hpu", "hccl", "habana_frameworks.torch"),
)
NAMES = tuple(kind.name for kind in KINDS)
BACKENDS = {"cpu": "gloo", **{kind.name: kind.backend for kind in KINDS}}


def device_module(device: torch.device) -> Any:
    """torch.cuda for a device of CUDA or ROCm, and its like for the others."""
    import torch

    return getattr(torch, device.type)
