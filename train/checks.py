"""What is checked before the first step: samples, sums and gradients.

All ranks must have the same samples, and a resumed run those that it had. A few samples of each
split are read: the first, the last, and some of the first step. What they draw from the seeded
generators is the same for all. A sample that differs when it is read again, because it has a
generator of its own, proves nothing and is left out.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import rng
from .data import Reader, come_in_turn, count_of, seed_sample
from .distributed import agree, refuse_if_any, run_on_all_ranks
from .model import bytes_of, named
from .order import Order
from .task import name_of
from .trainer import Trainer, sum_and_count

SOME = 4  # samples of the first step
RANDOM = "drawn at random"


def samples_of(reader: Reader, order: Order | None) -> dict[str, Any]:
    """Return the number of samples of a split, and digests of some of them by index.

    ``order`` is that of the training samples. Raises RefusedError on all ranks where they differ.
    """
    split = reader.split
    if come_in_turn(reader.samples):
        return {"count": count_of(reader.samples), "samples": {}}
    last = len(reader) - 1
    indices = {0, last}
    if order is not None:  # of the whole step, whichever rank takes them
        indices |= {*order.at(range(0, order.count(0), max(1, order.count(0) // SOME))).indices}
    digests = {index: digest_of(reader, index) for index in sorted(indices)}
    agree(
        {f"sample {index} of the data set {split!r}": value for index, value in digests.items()},
        "dataset() has to return the same samples in the same order on every rank: sort what comes "
        "from a set or a directory, and leave a division by rank to the loop",
    )
    return {"count": last + 1, "samples": digests}


def difference(saved: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first difference of a resumed run's samples from those it had, in a few words; or ""."""
    for split in saved:
        if split not in now:
            continue
        was, has = saved[split], now[split]
        if was["count"] != has["count"]:
            return f"it had {was['count']} samples of {split!r}, and now there are {has['count']}"
        for index, digest in was["samples"].items():
            other = has["samples"].get(index, digest)
            if digest != other and RANDOM not in (digest, other):
                return f"sample {index} of {split!r} is another one than it was"
    return ""


def digest_of(reader: Reader, index: int) -> str:
    """A digest of a sample, with the same seed each time; RANDOM if two readings differ."""
    digests = []
    with rng.reading():
        for _ in range(2):
            seed_sample(reader.seed, reader.split, index)
            digests.append(fingerprint(reader.samples[index]))
    return digests[0] if digests[0] == digests[1] else RANDOM


def fingerprint(value: Any) -> str:
    """A digest of a value of any type, by what it holds and not by where it is in memory."""
    return hashlib.sha256(_content(value)).hexdigest()[:16]


def _content(value: Any) -> bytes:
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {value.dtype}".encode() + bytes(bytes_of(value))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{value.shape} {value.dtype}".encode() + np.ascontiguousarray(value).tobytes()
    if isinstance(value, (set, frozenset)):
        return _joined(sorted(map(fingerprint, value)))
    if isinstance(value, Mapping):
        return _joined([fingerprint(part) for item in value.items() for part in item])
    if isinstance(value, (list, tuple, np.ndarray)):
        return _joined([fingerprint(part) for part in value])
    if value is None or isinstance(value, (str, bytes, int, float, complex, np.generic)):
        return f"{type(value).__name__} {value!r}".encode()
    if hasattr(value, "__dict__"):
        return type(value).__qualname__.encode() + _content(vars(value))
    try:
        return pickle.dumps(value)
    except Exception:  # only its class is known
        return type(value).__qualname__.encode()


def _joined(digests: Sequence[str]) -> bytes:
    return " ".join(digests).encode()


ALIKE = 0.1  # of two numbers, relative: a mean of two halves is half of their sum

Sums = tuple[float, float]  # of losses, and the count of terms


def is_mean(whole: Sums, one: Sums, other: Sums) -> bool:
    """Whether the loss of a batch is the mean of its halves' losses, and not their sum."""
    (loss, count), (a, n), (b, m) = whole, one, other
    if not math.isclose(count, n + m, rel_tol=ALIKE) or n + m == 0:
        return False  # whatever it counts, it is not the terms
    mean = (n * a + m * b) / (n + m)
    return math.isclose(loss, mean, rel_tol=ALIKE) and not math.isclose(loss, a + b, rel_tol=ALIKE)


def refuse_sums(trainer: Trainer, batches: Sequence[Any]) -> str:
    """Raises RefusedError on all ranks where a task returns a mean, or broadcasts its targets.

    ``batches`` are a batch and its two halves: the sum of a batch is that of its halves added up.
    Where it is not, the returned line says so. The model is in eval mode, where no sample affects
    the loss of another.
    """
    wrong = line = ""
    for name in ("loss", "measure"):
        hook = f"{name}() of the task {name_of(trainer.task)}"
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                sums = [_sums_of(name, trainer, batch) for batch in batches]
        except Exception:  # as from a loss that takes no half of a batch: the step will show it
            continue
        (whole, count), (one, n), (other, m) = sums
        texts = [str(each.message) for each in warned if "broadcasting" in str(each.message)]
        if wrong:
            continue
        if texts:
            wrong = (
                f"{hook} compares tensors of different shapes: {texts[0].split(' This ')[0]} "
                "Each output is compared with each target; give both one shape, as .squeeze(1) does"
            )
        elif is_mean(*sums):
            wrong = (
                f"{hook} returns a mean: {whole:.6g} for {count:g} terms, of which the one half "
                f"has {one:.6g} and the other {other:.6g}; return the sum, as "
                'reduction="sum" does, and the count'
            )
        elif abs(whole - one - other) > ALIKE * (abs(one) + abs(other)) and count == n + m:
            line = line or (
                f"{hook} is no sum over samples: {whole:.6g} for the first batch, and {one:.6g} "
                f"and {other:.6g} for its halves; look at the shapes, unless it compares samples"
            )
    refuse_if_any(wrong)
    return line


def _sums_of(name: str, trainer: Trainer, batch: Any) -> Sums:
    with trainer.evaluating(), trainer.autocast():
        sums = getattr(trainer.task, name)(trainer.bare, batch)
    loss, count = sums if name == "loss" else (sums["loss"], sums["count"])
    return float(loss), float(count)


def refuse_gradients(trainer: Trainer, batch: Any) -> str:
    """Raises RefusedError on all ranks for gradients of a batch that no step can use.

    Returns the names of parameters without one, which a single rank can do without. Nothing is
    changed: the wrapper is left out, and buffers, modes and random numbers stay.
    """
    learning, model = trainer.learning, trainer.bare
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    aside = rng.aside(trainer.config.seed, trainer.world.rank, trainer.device)
    with aside, trainer.autocast():
        loss, _ = run_on_all_ranks(lambda: sum_and_count(trainer.task.loss(model, batch)))
        in_order = torch.autograd.grad(loss, list(learning.values()), allow_unused=True)
    with torch.no_grad():
        for buffer, before in buffers:
            if buffer.layout == torch.strided and buffer.shape == before.shape:
                buffer.copy_(before)
    gradients = dict(zip(learning, in_order, strict=True))
    sparse = [n for n, g in gradients.items() if g is not None and g.layout != torch.strided]
    unused = [n for n, g in gradients.items() if g is None]
    wrong = ""
    if sparse:
        wrong = (
            f"the gradient of {named(sparse)} is sparse, which cannot be clipped; leave "
            "sparse=True of the nn.Embedding out"
        )
    elif unused and trainer.ddp is not None and not trainer.config.find_unused:
        wrong = (
            f"the first batch gave no gradient to {named(unused)}; freeze what loss() does not "
            "use, with requires_grad_(False), or type --find-unused if it is used now and then"
        )
    elif len(unused) == len(gradients):
        wrong = "the first batch gave no gradient to any parameter; use the model in loss()"
    refuse_if_any(wrong)
    return named(unused) if unused else ""
