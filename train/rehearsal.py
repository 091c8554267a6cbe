"""``--dry-run``: what a run would be, by one forward pass; nothing is trained or written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import schedule
from .arranged import order_of
from .config import EPOCH, Config
from .data import Readers, come_in_turn, described, to_device
from .distributed import World
from .learner import Learner
from .model import size_of
from .order import NO_END, Batch
from .screen import Screen
from .streamed import Stream
from .task import Task, has

MIB = 1 << 20
SHOWN = 20  # parameters


def rehearse(
    readers: Readers, config: Config, world: World, device: torch.device, screen: Screen
) -> None:
    """Make what a run makes, on every rank, and tell its shapes, memory and steps.

    Raises RefusedError as a run would, for what the ranks disagree on or the model lacks.
    """
    reader = readers["train"]
    order = order_of(readers.task, reader, config, world)
    if come_in_turn(reader.samples):
        Stream(reader, order)
    scheduled = schedule.schedule(config, order.kind.length, order.mean)
    learner = Learner(readers.task, config, world, device, order.global_batch / world.size)
    first = order.batch(0, 0)
    told = [
        f"a batch: {', '.join(shapes(reader[first]))}",
        *parameters(learner.bare),
        memory(learner, to_device(reader[first], device), first),
        *plan(scheduled, described(readers["validation"].samples)),
        f"a checkpoint is about {learner.state_bytes() / MIB:,.1f} MiB",
        "--dry-run: nothing was trained, and nothing written",
    ]
    for line in told:
        screen.line(line)


@contextmanager
def prepared(task: Task) -> Iterator[None]:
    """What the task prepares is there, in a directory that is removed behind it.

    Each rank does it for itself, because there is no directory that all are known to see.
    """
    with tempfile.TemporaryDirectory(prefix="train-") as directory:
        if has(task, "prepare"):
            task.prepare(Path(directory))
            task.prepared(Path(directory))
        yield


def shapes(batch: Any, name: str = "") -> list[str]:
    """The tensors in a batch, as "labels int64 (8,)"."""
    if isinstance(batch, Tensor):
        kind = str(batch.dtype).removeprefix("torch.")
        return [f"{name} {kind} {tuple(batch.shape)}".lstrip()]
    if hasattr(batch, "items"):
        inside: Any = batch.items()
    elif isinstance(batch, (list, tuple)):
        inside = zip(getattr(batch, "_fields", [""] * len(batch)), batch, strict=True)
    else:
        inside = getattr(batch, "__dict__", {}).items()
    return [line for key, value in inside for line in shapes(value, f"{name} {key}".strip())]


def parameters(model: nn.Module) -> list[str]:
    """The number of parameters, and the shapes of the first."""
    every = list(model.named_parameters())
    lines = [f"{size_of(model)}, in {len(every)} tensors:"]
    lines += [f"  {name} {tuple(p.shape)}" for name, p in every[:SHOWN]]
    return lines + ([f"  and {len(every) - SHOWN} more"] if len(every) > SHOWN else [])


def memory(learner: Learner, batch: Any, first: Batch) -> str:
    """What one rank needs beside Python and torch; activations are counted in a forward pass."""
    weights = sum(v.nbytes for v in (*learner.bare.parameters(), *learner.bare.buffers()))
    gradients = sum(p.nbytes for p in learner.learning)
    parts = {
        "weights": weights,
        "gradients": gradients,
        "optimizer": learner.moments_bytes(),
        f"activations of {len(first.indices)} samples": activations(learner, batch),
    }
    if has(learner.task, "optimizer"):
        del parts["optimizer"]
    told = ", ".join(f"{name} {size / MIB:,.1f}" for name, size in parts.items())
    own = "; the optimizer is the task's, and not in it" if has(learner.task, "optimizer") else ""
    return f"memory of a rank, about {sum(parts.values()) / MIB:,.1f} MiB: {told}{own}"


def activations(learner: Learner, batch: Any) -> int:
    """The bytes that a forward pass keeps for its backward pass."""
    own = {p.untyped_storage().data_ptr() for p in learner.bare.parameters()}
    kept: dict[int, int] = {}

    def note(value: Tensor) -> Tensor:
        place = value.untyped_storage()
        if place.data_ptr() not in own:
            kept[place.data_ptr()] = place.nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value), learner.autocast():
        learner.task.loss(learner.bare, batch)
    return sum(kept.values())


def plan(scheduled: schedule.Schedule, held_out: str) -> list[str]:
    """The steps, the learning rate on the way, and what happens between steps."""
    config, steps, batch = scheduled.config, scheduled.steps, scheduled.batch
    length = scheduled.length
    epochs = f"{steps * batch / length:.3g} epochs of {length:,} samples"
    if length == NO_END:
        epochs = "as they come"
    falls = f", times a fall over all ({config.schedule}) to {config.lr * scheduled.final:.3g}"
    return [
        f"{steps:,} steps of {batch:,.6g} samples: {epochs}",
        f"learning rate: {config.lr:.3g}, times a rise over {counted(scheduled.warmup, 'step')}"
        + ("" if config.schedule == "constant" else falls),
        f"validations, each of {held_out}: {often(scheduled, config.eval_every)}",
        f"checkpoints, the best and {config.keep} kept: {often(scheduled, config.save_every)}",
    ]


def counted(number: int, what: str) -> str:
    """So many of it, as "1 step" and "2 steps"."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def often(scheduled: schedule.Schedule, every: int | str) -> str:
    """How often something happens that also happens behind the last step."""
    if not scheduled.times(every):
        return "behind the last step"
    when = "behind each epoch" if every == EPOCH else f"behind every {every} steps"
    return f"{when} and the last"
