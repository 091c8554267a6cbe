"""Make the order in which a run takes its samples, by length if the task has ``lengths()``."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import order, schedule
from .config import Config
from .data import Reader, count_of, is_stream, shards_of
from .distributed import World, agree, run_on_all_ranks
from .errors import shared_refusal
from .order import ByLength, Kind, Order, Shuffled, Unshuffled
from .task import Task, has, name_of


def order_of(task: Task, reader: Reader, config: Config, world: World) -> Order:
    """Make the order of the samples of ``reader``.

    Raises RefusedError on all ranks where ``lengths()`` does not fit the samples, or where the
    ranks or the flags disagree.
    """
    batch = schedule.global_batch(config, world.size)
    samples, has_lengths, is_divided = reader.samples, has(type(task), "lengths"), False
    if config.global_tokens is not None and not has_lengths:
        raise shared_refusal(
            f"--global-tokens goes by lengths, and the task {name_of(task)} has no lengths(); use "
            "--global-batch"
        )
    if is_stream(samples):
        shards = shards_of(samples)
        is_divided = world.size > 1 and shards > 0 and shards % world.size == 0
        parts = f", {shards} shards in {world.size} parts" if is_divided else ""
        kind: Kind = Unshuffled(count_of(samples) or order.NO_END, parts)
    else:
        kind = Shuffled(len(reader), config.seed)
    if has_lengths:
        lengths = np.asarray(run_on_all_ranks(lambda: task.lengths(samples)))
        if lengths.shape != (count_of(samples),) or lengths.dtype.kind not in "iu":
            raise shared_refusal(
                f"lengths() of the task {name_of(task)} returns {lengths.dtype} of the shape "
                f"{lengths.shape}; return a whole number for each sample that has an index"
            )
        kind = _by_length(kind, lengths, config, world.size * config.accumulate)
        batch = max(1, round(kind.batch))
    agree(
        {"the order of the samples": kind.name},
        "lengths() of the task has to return the same on every rank",
    )
    return Order(kind, batch, config.accumulate, world.rank, world.size, is_divided)


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
        raise shared_refusal(
            f"a step has {budget:,} tokens, and each of its {passes} forward passes needs room for "
            f"the longest sample, of {longest:,}; use --global-tokens {needed} or more"
        )
    if kind.length < passes:
        raise shared_refusal(
            f"there are {kind.length} samples, and a step makes {passes} forward passes; start "
            "fewer ranks"
        )
    return ByLength(kind, lengths, config.seed, budget)
