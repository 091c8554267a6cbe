"""Run the steps and validations, and the actions due after each; ``trainer`` has the step.

The way of a step: ``order`` (which samples each rank has) -> ``data`` (reads them) -> ``feed``
(moves them to the device) -> ``trainer`` (loss, gradients, optimizer) -> ``watch`` (is the loss
finite, does a rank stop) -> ``log`` (a line if one is due) -> ``saving`` (a checkpoint if one is).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch

from .saving import Saver
from .schedule import Position
from .training import Measured, Training


def steps_and_validations(
    training: Training, saver: Saver, position: Position
) -> tuple[Position, Measured | None]:
    """Train from a position until the run is complete or a rank must stop, and save on the way.

    Returns the position, and the last validation if there was one.
    """
    schedule = training.schedule
    batches = training.batches(position)  # of this rank, from here to the end of the run
    last: Measured | None = None
    stop = False
    with profiler(training) if training.config.profile else nullcontext() as recorder:
        while not stop and not schedule.complete(position):
            if position.evaluated:
                position, stop = step(training, position, batches)
                if recorder is not None:
                    recorder.step()
            else:  # a validation is due after the last step
                position, stop, last = training.validation(position)
            if stop or schedule.worth_saving(position):
                training.watch.look_at_all()
                saver.save(position, training.log)
    return position, last


def profiler(training: Training) -> Any:
    """Make a profiler that writes a trace of three steps, after the first ones."""
    trace = training.place.out / f"trace-rank{training.place.world.rank}.json"
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(skip_first=5, wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda recorded: recorded.export_chrome_trace(str(trace)),
    )


def step(training: Training, position: Position, batches: Iterator[Any]) -> tuple[Position, bool]:
    """Do one step; return the position after it, and whether the ranks agreed to stop there."""
    config, schedule, began = training.config, training.schedule, time.perf_counter()
    number, taken = position.step + 1, training.order.count(position.samples)
    lr = training.trainer.set_lr(schedule.share(number))
    result = training.trainer.train_step(batches, training.wants_stop())
    stop = training.watch.look(number, position.samples, result)
    every = (config.log_every, config.eval_every, config.save_every)
    samples = position.samples + taken
    log, validate, save = (schedule.is_due(each, number, samples, taken) for each in every)
    # These would wait for the device anyway; waiting here counts that time as the steps' own.
    if log or validate or save:
        training.trainer.clock.wait_for_device()
    took_s = time.perf_counter() - began
    position = position.after_step(taken, took_s, validate)
    training.log.add(position, result, took_s)
    if log:
        training.log.write_means(position, result, lr)
    else:
        training.place.screen.progress(position.step, schedule.steps)
    return position, stop
