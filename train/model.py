"""Build the model with the same weights on all ranks, and check it before it learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from . import checkpoint, rng
from .config import Config
from .distributed import agree, run_on_all_ranks
from .errors import RefusedError, shared_refusal
from .task import Task

SHOWN = 8  # parameters named in a message


def build_model(task: Task, config: Config) -> nn.Module:
    """Make a task's model on the CPU. Raises RefusedError on all ranks unless theirs are alike."""
    rng.seed_alike(config.seed)
    model: nn.Module = run_on_all_ranks(task.model)
    if (path := config.init) is not None:
        run_on_all_ranks(lambda: start_from(path, model))
    shapes = {
        f"the parameter {name}": f"{tuple(p.shape)}, {p.dtype}{', frozen' * (not p.requires_grad)}"
        for name, p in model.named_parameters()
    }
    agree(shapes, "model() has to build the same model on every rank")
    values = {
        f"the initial values of {name}": f"CRC-32 {crc32(bytes_of(value)):08x}"
        for name, value in model.state_dict().items()
        if isinstance(value, Tensor)
    }
    agree(values, "draw them in model() from the generators of torch, numpy or random")
    return model


def start_from(path: str, model: nn.Module) -> None:
    """Give the model the weights of a file, a checkpoint, or a run's newest checkpoint.

    Raises RefusedError when there are none, or when they are another model's.
    """
    weights = checkpoint.weights_of(path)
    if not (isinstance(weights, Mapping) and all(isinstance(name, str) for name in weights)):
        raise RefusedError(
            f"--init: {path} holds no state_dict, which has tensors by name; use the path of one, "
            "of a checkpoint, or of a run"
        )
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise RefusedError(
            f"--init: {path} is of another model: {' '.join(str(error).split())}; use the flags "
            "that it was trained with"
        ) from error


def bytes_of(value: Tensor) -> Any:
    """The bytes of a tensor of any layout."""
    dense = value.detach() if value.layout == torch.strided else value.detach().to_dense()
    flat = dense.cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy() if flat.numel() else b""


def learning_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that learn, by name.

    Raises RefusedError when there are none, a complex one, or one with a sparse gradient.
    """
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not learning:
        raise shared_refusal(
            "model() has no parameter that learns: all of them are frozen, or there are none; set "
            "requires_grad_(True) for some"
        )
    embeddings = (nn.Embedding, nn.EmbeddingBag)
    modules = [(n, m) for n, m in model.named_modules() if isinstance(m, embeddings) and m.sparse]
    if sparse := [f"{n}.weight".lstrip(".") for n, m in modules if m.weight.requires_grad]:
        raise shared_refusal(
            f"the gradient of {named(sparse)} is sparse, which can be neither clipped nor added up "
            "over the ranks; leave sparse=True of the nn.Embedding out"
        )
    if strange := [name for name, parameter in learning.items() if parameter.is_complex()]:
        raise shared_refusal(
            f"the parameter {named(strange)} is complex, which neither AdamW's kernel nor the sum "
            "over the ranks takes; keep real numbers, and use torch.view_as_complex in forward"
        )
    return learning


def size_of(model: nn.Module) -> str:
    """The size of a model, as "1,000 parameters, 10 of them frozen"."""
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    size = f"{sum(p.numel() for p in model.parameters()):,} parameters"
    return size + (f", {frozen:,} of them frozen" if frozen else "")


def named(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
