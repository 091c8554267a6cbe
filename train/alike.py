"""Check that all ranks have the same samples, and a resumed run those that it had.

A few samples of each split are read before the first step: the first, the last, and some of the
first step. What they draw from the seeded generators is the same for all. A sample that differs
when it is read again, because it has a generator of its own, proves nothing and is left out.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .data import Reader, come_in_turn, count_of, reading, seed_sample
from .distributed import agree
from .order import Order

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
    with reading():
        for _ in range(2):
            seed_sample(reader.seed, reader.split, index)
            digests.append(fingerprint(reader.samples[index]))
    return digests[0] if digests[0] == digests[1] else RANDOM


def fingerprint(value: Any) -> str:
    """A digest of a value of any type, by what it holds and not by where it is in memory."""
    return hashlib.sha256(_content(value)).hexdigest()[:16]


def _content(value: Any) -> bytes:
    if isinstance(value, Tensor):
        dense = value.detach() if value.layout == torch.strided else value.detach().to_dense()
        flat = dense.cpu().contiguous().flatten()
        raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return f"{tuple(value.shape)} {value.dtype}".encode() + raw
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
