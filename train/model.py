"""Build the model with the same weights on all ranks, and check it before it learns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from . import checkpoint, rng
from .config import Config
from .distributed import agree, run_on_all_ranks
from .errors import RefusedError, shared_refusal
from .task import Task

SHOWN = 8  # parameters named in a message


def build_model(task: Task, config: Config) -> nn.Module:
    """Make a task's model on the CPU, changed by the flags, with the same weights on every rank."""
    rng.seed_alike(config.seed)
    model = run_on_all_ranks(lambda: made_by(task))
    if (path := config.init) is not None:
        run_on_all_ranks(lambda: start_from(path, model))
    agree_on_model(model)
    return model


def made_by(task: Task) -> nn.Module:
    """Make the task's model. Raises RefusedError unless it is an nn.Module of known shapes."""
    model: Any = task.model()
    if not isinstance(model, nn.Module):
        raise RefusedError(
            f"model() returns an object of the class {type(model).__name__}; return an nn.Module"
        )
    values = (*model.named_parameters(), *model.named_buffers())
    if lazy := [name for name, value in values if is_lazy(value)]:
        raise RefusedError(
            f"model() returns parameters without a shape, {named(lazy)}; pass a batch through the "
            "model before it is returned"
        )
    return model


def start_from(path: str, model: nn.Module) -> None:
    """Give the model the weights of a file, a checkpoint, or a run's newest checkpoint.

    Raises RefusedError when there are none, or when they are another model's.
    """
    try:
        weights = checkpoint.weights_of(Path(path))
    except RefusedError as error:
        raise RefusedError(f"--init: {error}") from error
    if not (isinstance(weights, Mapping) and all(isinstance(name, str) for name in weights)):
        raise RefusedError(
            f"--init: {path} holds no state_dict, which has tensors by name; type the path of one, "
            "of a checkpoint, or of a run"
        )
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise RefusedError(
            f"--init: {path} is of another model: {' '.join(str(error).split())}; type the flags "
            "that it was trained with"
        ) from error


def agree_on_model(model: nn.Module) -> None:
    """Raises RefusedError unless all ranks have built the same model, with the same weights."""
    shapes = {
        f"the parameter {name}": f"{tuple(p.shape)}, {p.dtype}{', frozen' * (not p.requires_grad)}"
        for name, p in model.named_parameters()
    }
    shapes["the modules in eval mode"] = named(in_eval_mode(model))
    agree(shapes, "model() has to build the same model on every rank")
    weights = {
        f"the initial values of {name}": f"CRC-32 {crc32(bytes_of(p)):08x}"
        for name, p in model.state_dict(keep_vars=True).items()
        if isinstance(p, Tensor)
    }
    agree(
        weights,
        "draw them in model() from the generators of torch, numpy or random, which are seeded",
    )


def bytes_of(value: Tensor) -> Any:
    """The bytes of a tensor of any layout."""
    dense = value.detach() if value.layout == torch.strided else value.detach().to_dense()
    flat = dense.cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy() if flat.numel() else b""


def learning_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that learn, by name.

    Raises RefusedError when there are none, or a complex one.
    """
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not learning:
        raise shared_refusal(
            "model() has no parameter that learns: all of them are frozen, or there are none; set "
            "requires_grad_(True) for some",
        )
    for name, parameter in learning.items():
        if parameter.is_complex():
            raise shared_refusal(
                f"the parameter {name} is complex, which neither AdamW's kernel nor the sum over "
                "the ranks takes; keep real numbers, and use torch.view_as_complex in forward",
            )
    return learning


def size_of(model: nn.Module) -> str:
    """The size of a model, as "1,000 parameters, 10 of them frozen"."""
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    size = f"{sum(p.numel() for p in model.parameters()):,} parameters"
    return size + (f", {frozen:,} of them frozen" if frozen else "")


def in_eval_mode(model: nn.Module, above: str = "") -> list[str]:
    """The names of modules that are in eval mode while the module around them is not."""
    names = []
    for name, child in model.named_children():
        if child.training:
            names += in_eval_mode(child, f"{above}{name}.")
        else:
            names.append(above + name)
    return names


def named(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
