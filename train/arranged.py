"""The order in which a run takes its samples, by what the hooks of its task say of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from . import order, schedule
from .config import Config
from .data import Reader, come_in_turn, count_of
from .distributed import World, agree, together
from .errors import shared_refusal
from .order import AsTheyCome, Blocks, ByLength, Kind, Order, Shuffled, Weighted
from .task import Task, has, name_of

WINDOW = 8  # blocks
HOOKS = {"blocks": "iu", "lengths": "iu", "weights": "iuf"}  # and numpy's kinds of their numbers


def order_of(
    task: Task,
    reader: Reader,
    config: Config,
    world: World,
    record: Mapping[str, Any] | None = None,
) -> Order:
    """The order of the samples of ``reader``; ``record`` is that of the run that goes on.

    Raises RefusedError on all ranks where a hook speaks of other samples than there are, or where
    the ranks or the flags disagree.
    """
    batch = schedule.global_batch(config, world.size)
    version = order.VERSION if record is None else int(record["version"])
    if version > order.VERSION:
        _refuse(
            f"the checkpoint has version {version} of the order of samples, and the newest known "
            f"here is {order.VERSION}; go on with a newer spawnlaunch"
        )
    hooks = [name for name in HOOKS if has(type(task), name)]
    _refuse_what_does_not_go_together(task, reader, config, hooks)
    told = together(lambda: {name: _told(task, name, reader) for name in hooks})
    kind = _kind(reader, told, config, version)
    if "lengths" in told:
        passes = world.size * config.accumulate
        kind = _by_length(kind, told["lengths"], config, passes, record)
        batch = max(1, round(kind.batch))
    agree(
        {"the order of the samples": kind.name},
        f"{' and '.join(hooks)} of the task have to return the same on every rank",
    )
    return Order(kind, batch, config.accumulate, world.rank, world.size, version)


def _refuse_what_does_not_go_together(
    task: Task, reader: Reader, config: Config, hooks: list[str]
) -> None:
    has_no, named = f"the task {name_of(task)} has no", " and ".join(f"{name}()" for name in hooks)
    if config.block_window is not None and "blocks" not in hooks:
        _refuse(f"--block-window counts blocks, and {has_no} blocks(); leave it out")
    if config.global_tokens is not None and "lengths" not in hooks:
        _refuse(f"--global-tokens goes by lengths, and {has_no} lengths(); type --global-batch")
    if hooks and come_in_turn(reader.samples):
        _refuse(
            f"the task {name_of(task)} has {named}, and the samples of its data set "
            f"{reader.split!r} have no index to go by; return samples that have one, or leave "
            f"{named} out"
        )
    if "blocks" in hooks and "weights" in hooks:
        _refuse(
            f"the task {name_of(task)} has {named}, and samples that are drawn by weights lie "
            "anywhere; leave one of them out"
        )


def _kind(reader: Reader, told: Mapping[str, Any], config: Config, version: int) -> Kind:
    if come_in_turn(reader.samples):
        return AsTheyCome(count_of(reader.samples) or order.NO_END)
    if "blocks" in told:
        return Blocks(told["blocks"].astype(np.int64), config.seed, config.block_window or WINDOW)
    if "weights" in told:
        return Weighted(told["weights"], config.seed)
    return Shuffled(len(reader), config.seed, version)


def _by_length(
    kind: Kind, lengths: Any, config: Config, passes: int, record: Mapping[str, Any] | None
) -> ByLength:
    """The budget is that of the flags from where the run goes on, and before it what it was."""
    longest = max(1, int(lengths.max()))
    budget, needed = config.global_tokens, passes * longest
    if budget is None:
        mean = float(order.sums(lengths, np.int64).sum()) / len(lengths)
        budget = round(mean * (config.global_batch or config.batch_size * passes))
        # That of a rank's own batch depends on the ranks anyway.
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
    budgets = [(int(since), int(tokens)) for since, tokens in (record or {}).get("budgets", ())]
    if not budgets or budgets[-1][1] != budget:
        budgets.append((record["samples"] if record and budgets else 0, budget))
    made = ByLength(kind, lengths, config.seed, budgets)
    fewest = min(made.fewest(record["samples"] if record else 0), made.length // made.windows)
    if fewest < passes:
        _refuse(
            f"the run goes on in steps of as few as {fewest} samples, and {passes} forward passes "
            "need one each; start fewer ranks, type a lower --accumulate, or begin anew with --init"
        )
    return made


def _told(task: Task, name: str, reader: Reader) -> Any:
    """The numbers that a hook returns: one for each sample, or for each block."""
    # Of the class: an object may well have weights or lengths that are no hook.
    hook = inspect.getattr_static(type(task), name).__get__(task, type(task))
    numbers, count = np.asarray(hook(reader.samples)), len(reader)
    if wrong := _unlike(numbers, name, count):
        what = "number" if name == "weights" else "whole number"
        each = "block, which have all samples together" if name == "blocks" else "sample"
        _refuse(
            f"{name}() of the task {name_of(task)} returns {wrong}, and the data set "
            f"{reader.split!r} has {count:,} samples; return one {what} of 0 or more for each "
            f"{each}"
        )
    return numbers


def _unlike(numbers: Any, name: str, count: int) -> str:
    """What is wrong with the numbers of a hook for so many samples; nothing if they are right."""
    if numbers.ndim != 1 or numbers.dtype.kind not in HOOKS[name]:
        return f"{numbers.dtype} of the shape {numbers.shape}"
    if name != "blocks" and len(numbers) != count:
        return f"{len(numbers):,} numbers"
    if numbers.size and not (numbers.min() >= 0 and np.isfinite(numbers.max())):
        return f"numbers from {numbers.min()} to {numbers.max()}"
    total = numbers.sum(dtype=np.float64 if name == "weights" else np.int64)
    if name == "blocks" and total != count:
        return f"blocks of {int(total):,} samples together"
    return "nothing but zeros" if name == "weights" and not total else ""


def _refuse(text: str) -> NoReturn:
    raise shared_refusal(text)
