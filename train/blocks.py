"""Less memory for more computing: what a block keeps for its backward pass is computed again."""

from __future__ import annotations

import functools
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from .errors import RefusedError


def checkpoint_activations(model: nn.Module) -> None:
    """Have each block of the model keep its input alone, and compute the rest a second time.

    Blocks are the items of the outermost lists of modules; a model of Hugging Face transformers
    knows its own. Raises RefusedError where there are none, or where to compute them twice would
    count their samples twice.
    """
    enable: Any = getattr(model, "gradient_checkpointing_enable", None)
    if enable is not None:
        enable({"use_reentrant": False})
        return
    blocks = _blocks(model)
    if not blocks:
        raise RefusedError(
            "--checkpoint-activations: the model has no nn.ModuleList or nn.Sequential of blocks; "
            "leave it out, or keep the blocks in one",
            shared=True,
        )
    for name, block in blocks:
        if any(isinstance(module, _BatchNorm) for module in block.modules()):
            raise RefusedError(
                f"--checkpoint-activations: the block {name} has a BatchNorm, which would count "
                "its samples twice; leave it out",
                shared=True,
            )
        # Not a wrapper: the names of the weights stay what they are.
        again: Any = functools.partial(checkpoint, block.forward, use_reentrant=False)
        block.forward = again


def _blocks(model: nn.Module, above: str = "") -> list[tuple[str, nn.Module]]:
    found = []
    for name, child in model.named_children():
        if isinstance(model, (nn.ModuleList, nn.Sequential)):
            found.append((above + name, child))
        else:
            found += _blocks(child, f"{above}{name}.")
    return found
