"""Checks before the first step: of the samples, and of the sums that a task returns.

All ranks must have the same samples, and a resumed run those that it had. A few samples of each
split are read: the first, the last, and some of the first step. What they draw from the seeded
generators is the same for all. A sample that differs when it is read again, because it has a
generator of its own, proves nothing and is left out.
"""

from __future__ import annotations

import hashlib
import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import rng
from .data import Reader, count_of, is_stream, seed_sample
from .distributed import agree, refuse_if_any
from .errors import RefusedError
from .model import bytes_of
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
    if is_stream(reader.samples):
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
            second = has["samples"].get(index, digest)
            if digest != second and RANDOM not in (digest, second):
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


def is_mean(whole: Sums, first: Sums, second: Sums) -> bool:
    """Whether the loss of a batch is the mean of its halves' losses, and not their sum."""
    (loss, count), (a, n), (b, m) = whole, first, second
    if not math.isclose(count, n + m, rel_tol=ALIKE) or n + m == 0:
        return False  # whatever it counts, it is not the terms
    mean = (n * a + m * b) / (n + m)
    return math.isclose(loss, mean, rel_tol=ALIKE) and not math.isclose(loss, a + b, rel_tol=ALIKE)


def refuse_sums(trainer: Trainer, batches: Sequence[Any]) -> str:
    """Raises RefusedError on all ranks where a task returns a mean, or nothing to learn from.

    ``batches`` are a batch and its two halves: the sum of a batch is that of its halves added up.
    Where it is not, the returned line says so. The model is in eval mode, where no sample affects
    the loss of another.
    """
    wrong = line = ""
    for name in ("loss", "measure"):
        hook = f"{name}() of the task {name_of(trainer.task)}"
        try:
            sums = (whole, count), (first, n), (second, m) = [
                _sums_of(name, trainer, batch) for batch in batches
            ]
        except RefusedError as error:
            wrong = wrong or str(error)
            continue
        except Exception:  # as from a loss that takes no half of a batch: the step will show it
            continue
        if is_mean(*sums):
            wrong = wrong or (
                f"{hook} returns a mean: {whole:.6g} for {count:g} terms, of which the one half "
                f"has {first:.6g} and the other {second:.6g}; return the sum, as "
                'reduction="sum" does, and the count'
            )
        elif abs(whole - first - second) > ALIKE * (abs(first) + abs(second)) and count == n + m:
            line = line or (
                f"{hook} is not a sum over samples: {whole:.6g} for the first batch, {first:.6g} "
                f"and {second:.6g} for its halves; look at the shapes, unless it compares samples"
            )
    refuse_if_any(wrong)
    return line


def _sums_of(name: str, trainer: Trainer, batch: Any) -> Sums:
    with trainer.evaluating(), trainer.autocast():
        if name == "measure":
            sums = trainer.task.measure(trainer.bare, batch)
            return float(sums["loss"]), float(sums["count"])
        with torch.enable_grad():
            loss, count = sum_and_count(trainer.task.loss(trainer.bare, batch))
        return float(loss), float(count)
