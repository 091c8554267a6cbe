"""Run the steps and validations, and the actions due after each; ``trainer`` has the step."""

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
    run: Training, saver: Saver, at: Position
) -> tuple[Position, Measured | None]:
    """Train from a position until the run is complete or a rank must stop, and save on the way.

    Returns the position, and the last validation if there was one.
    """
    schedule = run.schedule
    batches = run.batches(at)  # of this rank, from here to the end of the run
    last: Measured | None = None
    stop = False
    with profiler(run) if run.config.profile else nullcontext() as recorder:
        while not stop and not schedule.complete(at):
            if at.evaluated:
                at, stop = step(run, at, batches)
                if recorder is not None:
                    recorder.step()
            else:  # a validation is due after the last step
                at, stop, last = run.validation(at)
            if stop or schedule.worth_saving(at):
                run.watch.look_at_all()
                saver.save(at, run.log)
    return at, last


def profiler(run: Training) -> Any:
    """Make a profiler that writes a trace of three steps, after the first ones."""
    trace = run.place.out / f"trace-rank{run.place.world.rank}.json"
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(skip_first=5, wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda recorded: recorded.export_chrome_trace(str(trace)),
    )


def step(run: Training, at: Position, batches: Iterator[Any]) -> tuple[Position, bool]:
    """Do one step; return the position after it, and whether the ranks agreed to stop there."""
    config, schedule, began = run.config, run.schedule, time.perf_counter()
    number, taken = at.step + 1, run.order.count(at.samples)
    lr = run.trainer.set_lr(schedule.share(number))
    result = run.trainer.train_step(batches, run.wants_stop())
    stop = run.watch.look(number, at.samples, result)
    every = (config.log_every, config.eval_every, config.save_every)
    samples = at.samples + taken
    log, validate, save = (schedule.is_due(each, number, samples, taken) for each in every)
    # These would wait for the device anyway; waiting here counts that time as the steps' own.
    if log or validate or save:
        run.trainer.clock.wait_for_device()
    took_s = time.perf_counter() - began
    at = at.after_step(taken, took_s, validate)
    run.log.add(at, result, took_s)
    if log:
        run.log.write_means(at, result, lr)
    else:
        run.place.screen.progress(at.step, schedule.steps)
    return at, stop
