"""Make the order in which a run takes its samples, by length if the task has ``lengths()``."""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

import numpy as np

from . import order, schedule
from .config import Config
from .data import Reader, come_in_turn, count_of, shards_of
from .distributed import World, agree, run_on_all_ranks
from .errors import shared_refusal
from .order import AsTheyCome, ByLength, Kind, Order, Shuffled
from .task import Task, has, name_of


def order_of(
    task: Task,
    reader: Reader,
    config: Config,
    world: World,
) -> Order:
    """Make the order of the samples of ``reader``.

    Raises RefusedError on all ranks where ``lengths()`` does not fit the samples, or where the
    ranks or the flags disagree.
    """
    batch = schedule.global_batch(config, world.size)
    samples, has_lengths, divided = reader.samples, has(type(task), "lengths"), False
    if config.global_tokens is not None and not has_lengths:
        _refuse(
            f"--global-tokens goes by lengths, and the task {name_of(task)} has no lengths(); type "
            "--global-batch"
        )
    if come_in_turn(samples):
        if has_lengths:
            _refuse(
                f"the task {name_of(task)} has lengths(), and the samples of its data set "
                f"{reader.split!r} have no index to go by; return samples that have one, or leave "
                "lengths() out"
            )
        shards = shards_of(samples)
        divided = world.size > 1 and shards > 0 and shards % world.size == 0
        parts = f", {shards} shards in {world.size} parts" if divided else ""
        kind: Kind = AsTheyCome(count_of(samples) or order.NO_END, parts)
    else:
        kind = Shuffled(len(reader), config.seed)
    if has_lengths:
        lengths = run_on_all_ranks(lambda: _lengths(task, reader))
        kind = _by_length(kind, lengths, config, world.size * config.accumulate)
        batch = max(1, round(kind.batch))
    agree(
        {"the order of the samples": kind.name},
        "lengths() of the task has to return the same on every rank",
    )
    return Order(kind, batch, config.accumulate, world.rank, world.size, divided)


def _by_length(kind: Kind, lengths: Any, config: Config, passes: int) -> ByLength:
    """Make the order by length, with a sample for each of the ``passes`` of a step."""
    longest = max(1, int(lengths.max()))
    budget, needed = config.global_tokens, passes * longest
    if budget is None:
        mean = int(lengths.sum(dtype=np.int64)) / len(lengths)
        budget = round(mean * (config.global_batch or config.batch_size * passes))
        # With --batch-size the budget depends on the number of ranks anyway.
        budget = budget if config.global_batch else max(budget, needed)
    if budget < needed:
        _refuse(
            f"a step has {budget:,} tokens, and each of its {passes} forward passes needs room for "
            f"the longest sample, of {longest:,}; type --global-tokens {needed} or more"
        )
    if kind.length < passes:
        _refuse(
            f"there are {kind.length} samples, and a step makes {passes} forward passes; start "
            "fewer ranks"
        )
    return ByLength(kind, lengths, config.seed, budget)


def _lengths(task: Task, reader: Reader) -> Any:
    """Call ``lengths()``, and check that it returns one whole number for each sample."""
    # Looked up on the class: an object may have an attribute of that name that is no hook.
    hook = inspect.getattr_static(type(task), "lengths").__get__(task, type(task))
    numbers, count = np.asarray(hook(reader.samples)), len(reader)
    wrong = ""
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        wrong = f"{numbers.dtype} of the shape {numbers.shape}"
    elif len(numbers) != count:
        wrong = f"{len(numbers):,} numbers"
    elif numbers.size and numbers.min() < 0:
        wrong = f"numbers from {numbers.min()} to {numbers.max()}"
    if wrong:
        _refuse(
            f"lengths() of the task {name_of(task)} returns {wrong}, and the data set "
            f"{reader.split!r} has {count:,} samples; return one whole number of 0 or more for each"
        )
    return numbers


def _refuse(text: str) -> NoReturn:
    raise shared_refusal(text)
