"""A run: the workers meet, train together, part, and rank 0 keeps and shows the result."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from . import checkpoint, distributed, saving
from .config import Config
from .distributed import World
from .errors import RefusedError
from .loop import Outcome, Place, train
from .metrics import Metrics, known
from .out import EVALUATION, METRICS, claim
from .plot import PICTURE, need_matplotlib, plot
from .preemption import Deadline, requeue
from .report import brief
from .screen import Screen, printable, terminal_columns
from .task import (
    Exporting,
    Preparing,
    Sampling,
    Showing,
    Task,
    description_of,
    name_of,
    unit_of,
)
from .track import Trackers


def run(config: Config, task: Task, preempted_status: int) -> int:
    """Do what ``config`` asks; returns an exit status, 0 or ``preempted_status``.

    Raises RefusedError when it cannot be done.
    """
    deadline = Deadline(config.max_time, os.environ, time.time())
    world = distributed.read_world(os.environ)
    device = distributed.pick_device(config.device, world, torch.cuda.device_count())
    if config.tf32:
        torch.set_float32_matmul_precision("high")
    distributed.join(world, device)
    try:
        place, found = arrive(config, task, world, device)
        identity = announce(config, task, place)
        outcome = train(task, config, place, identity, found, lambda: bool(deadline.reason()))
    except RefusedError:
        distributed.leave()
        raise
    reasons = distributed.from_every_rank(deadline.reason())
    place.trackers.close()
    # The data-parallel wrapper holds the process group and sits in a reference cycle. It has to
    # go first: gloo's threads abort a process that exits while they are still wanted.
    gc.collect()
    distributed.leave()
    if not outcome.complete:
        say_preempted(config, outcome, reasons, place, preempted_status)
        return preempted_status
    if world.rank == 0:
        finish(outcome, config, task, place)
    return 0


def arrive(
    config: Config, task: Task, world: World, device: torch.device
) -> tuple[Place, Path | None]:
    """The place of the run and the checkpoint to go on from, both found by rank 0.

    What the task has to prepare is prepared. Raises RefusedError on all ranks together.
    """
    said = {**vars(config), **config.options}
    for name in ("options", "loader_workers"):  # as many as each rank has CPUs for
        del said[name]
    flags = {f"--{name.replace('_', '-')}": value for name, value in said.items()}
    distributed.agree(flags, "start all of them with the same command line")
    if config.plot:
        need_matplotlib()
    screen = Screen(None)
    if world.rank == 0:
        screen = Screen(sys.stdout, terminal_columns(sys.stdout, os.environ))
    found: Path | None = None
    complaints: list[str] = []
    out, refusal = Path(), ""
    if world.rank == 0:
        try:
            out = claim(config.out, name_of(task), config.overwrite, config.resume)
            found, complaints = saving.find(config.resume, out)
        except RefusedError as error:
            refusal = str(error)
    out, found, complaints, refusal = distributed.from_rank_0((out, found, complaints, refusal))
    if refusal:
        raise RefusedError(refusal, shared=True)
    for complaint in complaints:
        screen.line(f"{complaint}; using {found}")
    if isinstance(task, Preparing):
        distributed.rank_0_alone(lambda: task.prepare(out), "prepare the data", world, device)
        task.prepared(out)
    trackers = Trackers(config, out, world)
    metrics = Metrics(out / METRICS if world.rank == 0 else None)
    return Place(world, device, out, screen, metrics, trackers), found


def announce(config: Config, task: Task, place: Place) -> dict[str, Any]:
    """Say what is trained, where and on what; returns what a resumed run must have in common."""
    world, screen, description = place.world, place.screen, description_of(task, config.seed)
    ranks = "1 rank" if world.size == 1 else f"{world.size} ranks"
    each = f"{config.batch_size} samples per rank and step"
    if config.global_batch is not None:
        each = f"{config.global_batch} samples per step"
    elif config.accumulate > 1:
        each = f"{config.accumulate} times {config.batch_size} samples per rank and step"
    screen.line(f"{name_of(task)}: {description}")
    screen.line(f"{ranks} on {place.device.type}, {each}")
    screen.line(f"writing to {place.out}")
    return {"task": name_of(task), "data": description, "seed": config.seed}


def say_preempted(
    config: Config, outcome: Outcome, reasons: list[str], place: Place, status: int
) -> None:
    """Say why a run ended before it was complete, and see to it that it goes on."""
    if place.world.rank != 0:
        return
    reason = next(filter(None, reasons), "a signal")
    saved = checkpoint.path_of(place.out, outcome.at.step)
    place.screen.line(f"preempted by {reason} after step {outcome.at.step}, saved {saved}")
    if config.requeue:
        place.screen.line(requeue(os.environ, status))


def tell_splits(outcome: Outcome, config: Config, task: Task, place: Place) -> None:
    """Show and write what was found on each split."""
    numbers: dict[str, Any] = {"step": outcome.at.step}
    several = config.eval_only or len(outcome.measured) > 1
    for split, found in outcome.measured.items():
        numbers[split] = {"loss": known(found.loss), **found.report}
        said = "".join(f"  {name} {value:.4f}" for name, value in brief(found.report).items())
        if several:  # of one, the last line tells it
            place.screen.line(f"{split}: loss {found.loss:.3f}{unit_of(task)}{said}")
        if isinstance(task, Showing):
            place.screen.line(task.show(found.sums))
    (place.out / EVALUATION).write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def finish(outcome: Outcome, config: Config, task: Task, place: Place) -> None:
    """Show what the model does and how good it is."""
    screen, unit = place.screen, unit_of(task)
    if config.eval_only:
        tell_splits(outcome, config, task, place)
        return
    screen.line(f"saved {checkpoint.path_of(place.out, outcome.at.step)}")
    outcome.model.eval()
    if config.plot:
        plot(place.out / METRICS, place.out / PICTURE, unit)
        screen.line(f"drew {place.out / PICTURE}")
    tell_splits(outcome, config, task, place)
    if isinstance(task, Sampling):
        screen.line(f"a sample:\n{printable(task.sample(outcome.model, config.seed))}\n")
    if isinstance(task, Exporting):
        best = checkpoint.path_of(place.out, outcome.at.best_step)
        if outcome.at.best_step != outcome.at.step and best.exists():
            outcome.model.load_state_dict(checkpoint.weights_of(best))
            screen.line(f"exporting the best weights, of step {outcome.at.best_step}")
        task.export(outcome.model, place.out)
    screen.line(f"validation loss {outcome.at.loss:.3f}{unit}")
