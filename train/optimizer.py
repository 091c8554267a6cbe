"""Make the optimizer of a run, and restore its state by the names of the parameters."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .config import Config, pair
from .distributed import agree, together
from .errors import RefusedError
from .task import Task

OF_PARAMETERS = ("params", "param_names")  # in a group, beside its settings


def make(
    task: Task, model: nn.Module, learning: list[nn.Parameter], config: Config
) -> torch.optim.Optimizer:
    """Return the task's own optimizer, or AdamW for the parameters that are ``learning``.

    Only matrices decay: a norm's scale has no reason to be near 0.
    """
    if (own := together(lambda: own_optimizer(task, model, config.lr))) is not None:
        settings = [
            {k: v for k, v in group.items() if k not in OF_PARAMETERS} for group in own.param_groups
        ]
        members = [", ".join(sorted(names)) for names in names_in(own, model)]
        agree(
            {
                "the optimizer": type(own).__name__,
                **{f"group {i} of the optimizer": group for i, group in enumerate(settings)},
                **{f"the parameters of group {i}": names for i, names in enumerate(members)},
            },
            "optimizer() has to make the same one on every rank",
        )
        return own
    groups = [
        {"params": [p for p in learning if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in learning if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=pair(config.betas), fused=True)


def own_optimizer(task: Task, model: nn.Module, lr: float) -> torch.optim.Optimizer | None:
    """Make the task's own optimizer. Raises RefusedError unless the loop can step with it."""
    own: torch.optim.Optimizer | None = task.optimizer(model, lr)
    if own is None:
        return None
    is_one = isinstance(own, torch.optim.Optimizer) and not _needs_closure(own)
    if is_one and all(group.get("lr") is not None for group in own.param_groups):
        _refuse_strangers(own, model)
        return own
    kind = type(own).__name__
    if isinstance(own, (list, tuple, dict)):
        raise RefusedError(
            f"optimizer() returns {len(own)} optimizers in a {kind}, as for a GAN, whose losses "
            "take turns; the loop has one loss and one optimizer: return one, with a group of "
            "parameters for each rate, or write a loop of your own, as train/examples/plain_ddp.py"
        )
    why = "which asks for the loss several times in one step"
    if is_one:
        why = (
            "a group of which has no lr for the schedule to scale (Adafactor: relative_step=False)"
        )
    elif not isinstance(own, torch.optim.Optimizer):
        why = "which is no torch.optim.Optimizer"
    raise RefusedError(f"optimizer() returns an object of the class {kind}, {why}; return another")


def _refuse_strangers(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Raises RefusedError where the optimizer has parameters that are not the model's.

    Their gradients would stay on each rank, and no checkpoint would hold them.
    """
    known = set(map(id, model.parameters()))
    every = [p for group in optimizer.param_groups for p in group["params"]]
    if strange := [tuple(p.shape) for p in every if id(p) not in known]:
        raise RefusedError(
            f"optimizer() has {len(strange)} of its {len(every)} parameters from elsewhere than "
            f"the model it was given, one of the shape {strange[0]}; make them part of what "
            "model() returns"
        )


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty


def names_in(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[list[str]]:
    """The names of the parameters in each group, in the order in which the optimizer has them."""
    names = {id(p): name for name, p in model.named_parameters()}
    return [[names[id(p)] for p in group["params"]] for group in optimizer.param_groups]


def by_name(
    state: dict[str, Any],
    names: Sequence[Sequence[str]],
    settings: Sequence[dict[str, Any]],
    now: Sequence[Sequence[str]],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Reorder a state_dict of an optimizer, and its groups' first settings, to that of ``now``.

    A state_dict has parameters by their position (torch.optim.Optimizer.state_dict), and ``names``
    has the name for each position. Raises ValueError where a group has other parameters now.
    """
    before = [frozenset(group) for group in names]
    wanted = [frozenset(group) for group in now]
    if sorted(map(sorted, before)) != sorted(map(sorted, wanted)):
        where = {name: at for at, group in enumerate(before) for name in group}
        to = {name: at for at, group in enumerate(wanted) for name in group}
        moved = sorted(n for n in {**where, **to} if _group(before, n) != _group(wanted, n))
        raise ValueError(f"its optimizer has other parameters in its groups: {', '.join(moved)}")
    saved = {
        name: state["state"].get(position)
        for group, of_group in zip(state["param_groups"], names, strict=True)
        for position, name in zip(group["params"], of_group, strict=True)
    }
    order = [before.index(group) for group in wanted]
    states, groups, position = {}, [], 0
    for at, of_group in zip(order, now, strict=True):
        positions = range(position, position + len(of_group))
        group = {k: v for k, v in state["param_groups"][at].items() if k not in OF_PARAMETERS}
        if "param_names" in state["param_groups"][at]:
            group["param_names"] = list(of_group)
        groups.append({**group, "params": list(positions)})
        for number, name in zip(positions, of_group, strict=True):
            if saved[name] is not None:
                states[number] = saved[name]
        position = positions.stop
    return {"state": states, "param_groups": groups}, [settings[at] for at in order]


def _group(groups: Sequence[frozenset[str]], name: str) -> frozenset[str]:
    return next((group for group in groups if name in group), frozenset())


def use_changed(
    optimizer: torch.optim.Optimizer,
    before: Sequence[dict[str, Any]],
    asked: Sequence[dict[str, Any]],
) -> None:
    """Give each group the settings of this run that differ from those of the run before.

    Other settings stay as the optimizer has changed them: it may count steps there.
    """
    for group, was, made in zip(optimizer.param_groups, before, asked, strict=True):
        for name, value in copy.deepcopy(made).items():
            if name not in was or _plain(was[name]) != _plain(value):
                group[name] = value


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) else value
