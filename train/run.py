"""A run: the workers join, train together and leave, and rank 0 saves and prints the result."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import torch
from torch import nn

from . import checkpoint, distributed, saving
from .config import Config
from .data import Readers
from .distributed import World, peak_bytes, pick_device
from .ending import interrupt_saves, noted
from .errors import RefusedError, StoppedError, advice, shared_refusal
from .log import in_brief, known, metrics_of
from .loop import steps_and_validations
from .saving import EVALUATION, Saver, begin, claim
from .schedule import Deadline, Position
from .screen import Screen, printable, terminal_columns
from .task import Task, has, name_of, unit_of
from .tasks import rows
from .training import Measured, Place, Training


class Outcome(NamedTuple):
    """The model without wrappers, how far it came, and its last evaluations by split."""

    model: nn.Module
    at: Position
    complete: bool
    measured: Mapping[str, Measured]


def run(config: Config, make_task: Callable[[], Task], preempted_status: int) -> int:
    """Do what ``config`` asks; returns an exit status, 0 or ``preempted_status``.

    Raises RefusedError when it cannot be done.
    """
    deadline = Deadline(config.max_time, os.environ, time.time(), noted)
    world = distributed.read_world(os.environ)
    device = pick_device(
        config.device, world, 0 if config.device == "cpu" else torch.cuda.device_count()
    )
    if config.tf32:
        torch.set_float32_matmul_precision("high")
    distributed.join(world, device)  # and from here on all ranks refuse together
    screen = Screen(None)
    if world.rank == 0:
        screen = Screen(sys.stdout, terminal_columns(sys.stdout, os.environ))
    try:
        agree_on_flags(config)
        task = distributed.run_on_all_ranks(make_task)
        place, begin_from = arrive(config, task, world, device, screen)
        readers = Readers(task, config)
        identity = announce(readers, config, world, device, screen)
        screen.line(f"writing to {place.out}")
        outcome = train(readers, config, place, identity, begin_from, deadline)
    except RefusedError as refusal:
        distributed.leave_group()
        raise RefusedError(str(refusal), shared=refusal.shared, met=True) from refusal
    reasons = distributed.from_every_rank(deadline.reason())
    place.metrics.close()
    # The data-parallel wrapper holds the process group and sits in a reference cycle. It has to
    # go first: gloo's threads abort a process that exits while the group is in use.
    gc.collect()
    distributed.leave_group()
    if not outcome.complete:
        print_preempted(outcome, reasons, place)
        return preempted_status
    if world.rank == 0:
        finish(outcome, config, task, place)
    return 0


def train(
    readers: Readers,
    config: Config,
    place: Place,
    identity: dict[str, Any],
    begin_from: Path | None,
    deadline: Deadline,
) -> Outcome:
    """Train from ``begin_from``, or from the beginning, until the end or until a rank must stop.

    Every rank calls it with the same arguments but its place, and gets the same result.
    """
    training = Training(readers, config, place, deadline.is_over)
    saver = Saver(place.out, identity, config, place.world, training, deadline)
    at = saver.restore(begin_from, training.log)
    if config.eval_only:
        if begin_from is None and config.init is None and not readers.task.pretrained:
            origin = readers.task.origin
            raise shared_refusal(
                "--eval-only evaluates trained weights, and these are not"
                f"{origin and f' ({origin})'}; use --resume or --init"
            )
        return Outcome(training.trainer.bare, at, True, training.at_the_end(None))
    if training.schedule.complete(at) or (config.eval_at_start and begin_from is None):
        at = replace(at, evaluated=False)  # so that a complete run is validated again
    distributed.run_on_all_ranks(
        lambda: begin(config, place.out, at) if place.world.rank == 0 else None
    )
    if place.world.size == 1:
        interrupt_saves.set()
    try:
        at, last = steps_and_validations(training, saver, at)
    except StoppedError:
        saver.wait()  # so that the last checkpoint is on the disk
        raise
    saver.finish()
    interrupt_saves.clear()
    training.log.summary(distributed.from_every_rank(peak_bytes(place.device)))
    complete = training.schedule.complete(at)
    measured = training.at_the_end(last) if complete else {}
    return Outcome(training.trainer.bare, at, complete, measured)


def agree_on_flags(config: Config) -> None:
    """Raises RefusedError on all ranks together unless they have the same flags."""
    typed = {**vars(config), **config.options}
    # Loader processes are as many as each rank has CPUs for.
    unequal = ("options", "loader_workers")
    flags = {f"--{n.replace('_', '-')}": value for n, value in typed.items() if n not in unequal}
    distributed.agree(flags, "start all of them with the same command line")


def arrive(
    config: Config, task: Task, world: World, device: torch.device, screen: Screen
) -> tuple[Place, Path | None]:
    """Return the place of the run and the checkpoint to resume from, both found by rank 0.

    The task prepares its data here. Raises RefusedError on all ranks together.
    """

    def look() -> tuple[Path, Path | None, list[str]]:
        if world.rank != 0:
            return Path(), None, []
        out = claim(config, name_of(task))
        return out, *saving.find(config, out)

    out, begin_from, complaints = distributed.from_rank_0(distributed.run_on_all_ranks(look))
    for complaint in complaints:
        screen.line(f"{complaint}; using {begin_from}")
    if has(task, "prepare"):
        if config.overwrite and world.rank == 0:
            rows.forget(out)
        distributed.rank_0_alone(lambda: task.prepare(out), world, device)
        task.prepared(out)
    return Place(world, device, out, screen, metrics_of(config, out, world.rank)), begin_from


def announce(
    readers: Readers, config: Config, world: World, device: torch.device, screen: Screen
) -> dict[str, Any]:
    """Print the task, its data and the ranks; return the identity that a resumed run must have."""
    name, description = name_of(readers.task), readers.describe()
    each = f"{config.batch_size} samples per rank and step"
    if config.global_tokens is not None:
        each = f"{config.global_tokens:,} tokens per step"
    elif config.global_batch is not None:
        each = f"{config.global_batch} samples per step"
    elif config.accumulate > 1:
        each = f"{config.accumulate} times {each}"
    screen.line(f"{name}: {description}")
    screen.line(f"{world.size} {'rank' if world.size == 1 else 'ranks'} on {device.type}, {each}")
    return {"task": name, "data": description, "seed": config.seed}


def print_preempted(outcome: Outcome, reasons: list[str], place: Place) -> None:
    """Print why a run ended early, and the command that continues it."""
    reason = next(filter(None, reasons), "a signal")
    saved = checkpoint.path_of(place.out, outcome.at.step)
    place.screen.line(f"preempted by {reason} after step {outcome.at.step}, saved {saved}")
    several = place.world.size > place.world.local_size
    place.screen.line(
        f"to continue: {command_of(place)} --resume auto"
        f"{' on each node, with --nnodes and --master-addr as before' * several}"
    )


def command_of(place: Place) -> str:
    """Return the command that starts the run with as many ranks as this node has."""
    start = f"spawnlaunch --nproc {place.world.local_size} --"
    return f"{start} --config {quote(str(place.out / saving.CONFIG))}"


def print_splits(outcome: Outcome, config: Config, task: Task, place: Place) -> None:
    """Print the results on each split, and write them to a file."""
    numbers: dict[str, Any] = {"step": outcome.at.step}
    if not outcome.at.step:  # the weights are of no step of this run
        numbers = {"weights": config.init or "of model()"}
    several = config.eval_only or len(outcome.measured) > 1
    for split, measured in outcome.measured.items():
        every = {"loss": measured.loss, **measured.report}
        numbers[split] = {name: known(value) for name, value in every.items()}
        if several:  # for one split the last line has it
            loss = f"{split}: loss {measured.loss:.3f}{unit_of(task)}"
            place.screen.line(loss + in_brief(measured.report))
        if table := task.show(measured.sums):
            place.screen.line(table)
    file = place.out / EVALUATION
    try:
        file.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoppedError(f"cannot write {file}: {error.strerror}; {advice(error)}") from error


def finish(outcome: Outcome, config: Config, task: Task, place: Place) -> None:
    """Print the results and a sample of the model, and export it."""
    screen, at = place.screen, outcome.at
    if config.eval_only:
        print_splits(outcome, config, task, place)
        return
    screen.line(f"saved {checkpoint.path_of(place.out, at.step)}")
    outcome.model.eval()
    print_splits(outcome, config, task, place)
    best = place.out / checkpoint.BEST
    has_better = at.best_step != at.step and best.exists()
    if has_better:
        screen.line(
            f"that was step {at.step}, and best was step {at.best_step}; to evaluate it: "
            f"{command_of(place)} --init {quote(str(best))} --eval-only "
            f"--out {quote(f'{place.out}-best')}"
        )
    if has(task, "sample"):
        screen.line(f"a sample:\n{printable(task.sample(outcome.model, config.seed))}\n")
    if has(task, "export"):
        if has_better:
            weights, _ = checkpoint.load(checkpoint.path_of(place.out, at.best_step))
            outcome.model.load_state_dict(weights)
            screen.line(f"exporting the best weights, of step {at.best_step}")
        task.export(outcome.model, place.out)
    screen.line(f"validation loss {at.loss:.3f}{unit_of(task)}")
