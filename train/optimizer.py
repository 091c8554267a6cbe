"""Make the optimizer of a run, and restore its state by the names of the parameters."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .config import Config, pair
from .distributed import agree, run_on_all_ranks
from .errors import shared_refusal
from .task import Task

OF_PARAMETERS = ("params", "param_names")  # in a group, beside its settings


def make(
    task: Task, model: nn.Module, learning: list[nn.Parameter], config: Config
) -> torch.optim.Optimizer:
    """Return the task's own optimizer, or AdamW for the parameters that are ``learning``.

    Only matrices decay: a norm's scale has no reason to be near 0.
    """
    if (optimizer := run_on_all_ranks(lambda: task.optimizer(model, config.lr))) is None:
        groups = [
            {"params": [p for p in learning if p.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in learning if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=config.lr, betas=pair(config.betas), fused=True)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise shared_refusal(
            f"optimizer() returns an object of the class {type(optimizer).__name__}; return one "
            "torch.optim.Optimizer, with a group of parameters for each rate"
        )
    agreed = {"the optimizer": type(optimizer).__name__}
    for i, names in enumerate(names_in(optimizer, model)):
        settings = {k: v for k, v in optimizer.param_groups[i].items() if k not in OF_PARAMETERS}
        agreed[f"group {i} of the optimizer"] = f"{settings} for {', '.join(sorted(names))}"
    agree(agreed, "optimizer() has to make the same one on every rank")
    return optimizer


def names_in(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[list[str]]:
    """Return the names of the parameters in each group, in the order that the optimizer has.

    Raises RefusedError where one is not the model's: the ranks would not share its gradient.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    every = [p for group in optimizer.param_groups for p in group["params"]]
    if strange := [tuple(p.shape) for p in every if id(p) not in names]:
        raise shared_refusal(
            f"optimizer() has {len(strange)} of its {len(every)} parameters from elsewhere than "
            f"the model, one of the shape {strange[0]}; make them part of what model() returns"
        )
    return [[names[id(p)] for p in group["params"]] for group in optimizer.param_groups]


def state_by_name(
    optimizer: torch.optim.Optimizer, names: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """The optimizer's state_dict, with ``names`` of parameters in place of their positions."""
    state = optimizer.state_dict()
    by_position = [name for group in names for name in group]
    return {
        "state": {by_position[at]: value for at, value in state["state"].items()},
        "param_groups": [
            {**group, "params": list(of_group)}
            for group, of_group in zip(state["param_groups"], names, strict=True)
        ],
    }


def by_position(
    saved: dict[str, Any], settings: Sequence[dict[str, Any]], names: Sequence[Sequence[str]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The state_dict that ``state_by_name`` saved, and first settings, in the order of ``names``.

    Raises ValueError where a group has other parameters now.
    """
    groups = zip(saved["param_groups"], settings, strict=True)
    known = {frozenset(group["params"]): (group, before) for group, before in groups}
    now = [frozenset(group) for group in names]
    if moved := set(now).symmetric_difference(known):
        every = sorted(frozenset.union(*moved))
        raise ValueError(f"its optimizer has other parameters in its groups: {', '.join(every)}")
    positions = {name: at for at, name in enumerate(name for group in names for name in group)}
    states = {positions[name]: state for name, state in saved["state"].items()}
    restored = []
    for group, of_group in zip(now, names, strict=True):
        restored.append({**known[group][0], "params": [positions[name] for name in of_group]})
        if "param_names" in restored[-1]:
            restored[-1]["param_names"] = list(of_group)
    return {"state": states, "param_groups": restored}, [known[group][1] for group in now]


def use_changed(
    optimizer: torch.optim.Optimizer,
    before: Sequence[dict[str, Any]],
    requested: Sequence[dict[str, Any]],
) -> None:
    """Give each group the settings of this run that differ from those of the run before.

    Other settings stay as the optimizer has changed them: it may count steps there.
    """
    for group, was, now in zip(optimizer.param_groups, before, requested, strict=True):
        for name, value in copy.deepcopy(now).items():
            if name not in was or _plain(was[name]) != _plain(value):
                group[name] = value


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) else value
