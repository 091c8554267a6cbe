"""One step of the training, top to bottom, in the order in which it happens.

``examples/plain_ddp.py`` is the same without what this adds: losses and gradients that are exact
for any number of ranks, several passes per step, half precision, and steps that cannot be used.

On a device Python only queues the work. Nothing in a step reads a number that is computed there,
which would make both wait for each other: ``Watch`` reads it some steps later, and ``Log`` when a
line is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .data import number_on
from .device import profiling, without_collections
from .learner import Learner
from .log import Step
from .saving import Saver
from .schedule import Position, collect_if_due
from .training import Measured, Training

TINY = 1e-6  # in place of a zero that would be divided by


def steps_and_validations(
    run: Training, saver: Saver, at: Position
) -> tuple[Position, Measured | None]:
    """Go on from a position until the run is complete or a rank must stop; and save on the way.

    Returns the position, and the last validation if there was one.
    """
    gc_every, schedule = run.config.gc_every, run.schedule
    batches = run.batches(at)  # of this rank, from here to the end of the run
    last: Measured | None = None
    stop = False
    trace = run.place.out / f"trace-rank{run.place.world.rank}.json"
    with without_collections(gc_every > 0), profiling(run.config.profile, trace) as record:
        while not stop and not schedule.complete(at):
            if at.evaluated:
                at, stop = step(run, at, batches)
                collect_if_due(gc_every, at.step)  # on all ranks between the same two steps
                if record is not None:
                    record()
            else:  # a validation is due behind the last step
                at, stop, last = run.validation(at)
            if stop or schedule.worth_saving(at):
                run.watch.look_at_all()
                saver.save(at, run.log)
    return at, last


def step(run: Training, at: Position, batches: Iterator[Any]) -> tuple[Position, bool]:
    """One step: the position behind it, and whether the ranks agreed to stop there."""
    config, schedule, began = run.config, run.schedule, time.perf_counter()
    number, taken = at.step + 1, run.order.count(at.samples)
    lr = run.learner.set_lr(schedule.share(number))
    result = learn(run.learner, batches, run.wants_stop)
    # Raises where a loss or gradient is not finite; on a device it looks at a step before this one.
    stop = run.watch.look(number, at.samples, result)
    if unused := run.learner.unused():
        run.place.screen.line(f"without a gradient in the first step: {unused}")
    every = (config.log_every, config.eval_every, config.save_every)
    samples = at.samples + taken
    log, validate, save = (schedule.is_due(each, number, samples, taken) for each in every)
    # These would wait for the device anyway; waiting here counts that time as the steps' own.
    if log or validate or save:
        run.learner.clock.wait_for_device()
    took_s = time.perf_counter() - began
    at = at.after_step(taken, took_s, validate)
    run.log.add(at, result, took_s)
    if log:
        run.log.tell(at, result, lr)
    else:
        run.place.screen.progress(at.step, schedule.steps)
    return at, stop


def learn(learner: Learner, batches: Iterator[Any], wants_stop: Callable[[], bool]) -> Step:
    """Learn from the next ``accumulate`` batches; this rank's share of one global batch."""
    clock, passes = learner.clock, learner.config.accumulate
    losses, counts = [], []
    clock.start()
    if learner.config.skip_nonfinite:  # then a step may have to leave all as it was
        learner.note_buffers()
    for micro in range(passes):
        last = micro + 1 == passes
        batch = next(batches)  # read and moved to the device by data.Feed
        clock.have_data()
        # In the last backward pass DistributedDataParallel hands over each bucket of gradients as
        # soon as it is full. Learner._send, its hook, starts the sum over the ranks, while the pass
        # goes on with the next bucket.
        with learner.gradients_stay_here(not last):
            with learner.autocast():
                loss_sum, count = learner.loss(batch)  # the forward pass
            losses.append(loss_sum.detach())
            counts.append(number_on(count, learner.device))
            if last:
                # On a CPU they travel in the last bucket, else in an operation of their own.
                wait_for_totals = learner.start_sum(summed(losses, counts, wants_stop()))
            torch.autograd.backward(learner.scaler.scale(loss_sum / learner.per_rank))
        clock.computed(last)
    learner.refuse_unsent()
    totals = wait_for_totals()
    clock.received()
    norm, finite = update(learner, totals)
    clock.stop()
    return Step(torch.cat((totals, norm.double()[None])), torch.stack(losses), finite)


def summed(losses: list[Tensor], counts: list[Tensor], stop: bool) -> Tensor:
    """What the ranks add up: the sum of losses, the count of their terms, who wants to stop."""
    # Filled on the device: to copy a number there would wait for what is queued.
    stops = torch.full((), float(stop), dtype=torch.float64, device=losses[0].device)
    if len(losses) == 1:
        return torch.stack((losses[0].double(), counts[0].double(), stops))
    sums = [torch.stack(parts).double().sum() for parts in (losses, counts)]
    return torch.stack((*sums, stops))


def update(learner: Learner, totals: Tensor) -> tuple[Tensor, Tensor]:
    """Change the weights by the gradient of the global loss sum divided by its count.

    Returns the norm of that gradient, and whether it and the loss are finite, else no weight
    changes. `learn` divided each loss by `per_rank`, the mean number of samples of a rank, which
    keeps half precision in its range. So `per_rank / count` makes of the sum over the ranks the
    gradient of the global mean; the factor of clipping goes into it.
    """
    learner.scaler.unscale_(learner.optimizer)
    gradients = [p.grad for p in learner.optimized if p.grad is not None]
    learner.look_at_first_gradients()
    factor = learner.per_rank / totals[1].clamp(min=TINY)  # as the norm, in double precision
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) * factor
    if clip := learner.config.clip:
        factor = factor * (clip / (norm + TINY)).clamp(max=1.0)
    finite = torch.isfinite(norm + totals[0])
    learner.optimize_if(finite, factor, gradients)
    learner.forget_gradients()
    return norm, finite
