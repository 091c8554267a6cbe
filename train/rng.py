"""The random generators of this process: one stream for the model, and one for each sample.

The model draws from Python's, NumPy's and torch's generators as ``seed`` left them, which a
checkpoint holds. A sample is read with the same generators, seeded anew from its place in the run,
so what it draws does not depend on who reads it, nor on what was read before.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.random import mtrand


def read(device: torch.device) -> dict[str, Any]:
    """The states of Python's, NumPy's and torch's generators, of tensors, numbers and tuples."""
    name, keys, *rest = np.random.get_state(legacy=True)
    assert name == "MT19937"
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def write(states: dict[str, Any], device: torch.device) -> None:
    """Put the generators where ``read`` found them."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    keys, *rest = states["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def seed_alike(seed: int) -> None:
    """Let every rank draw the same numbers, for what a task makes: its data and its model."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def seed(seed: int, rank: int) -> None:
    """Let every rank draw its own numbers, for dropout and the like."""
    words = np.random.SeedSequence((seed, rank)).generate_state(2)
    random.seed(int(words[0]))
    np.random.seed(int(words[0]))
    torch.manual_seed(int(words[1]))


@contextmanager
def aside(first: int, rank: int, device: torch.device) -> Iterator[None]:
    """Draw what ``seed(first, rank)`` leads to in here, and behind it as if nothing was drawn."""
    before = read(device)
    seed(first, rank)
    try:
        yield
    finally:
        write(before, device)


def seed_sample(seed: int, split: str, place: int) -> None:
    """Let the next sample draw its own numbers, the same wherever and whenever it is read.

    ``place`` tells it from all others of the split. Takes some 7 microseconds; torch.manual_seed
    takes ten times that, because it seeds every kind of device.
    """
    digest = hashlib.blake2b(f"{seed} {split} {place}".encode(), digest_size=16).digest()
    number = int.from_bytes(digest, "little")
    random.seed(number >> 64)
    # Different words: both are Mersenne twisters, which take 32 bits of a seed.
    np.random.seed(number & 0xFFFFFFFF)
    torch.default_generator.manual_seed(number >> 32 & 0xFFFFFFFF)


_of_samples = np.random.MT19937()


@contextmanager
def reading() -> Iterator[None]:
    """Read samples in here; behind it the model draws as if they had drawn nothing.

    It is entered for a batch that other processes read as well: to change NumPy's generator drops
    the second half of a pair of normal numbers, and that must not depend on who reads.
    """
    python, own, ours = random.getstate(), mtrand.get_bit_generator(), torch.get_rng_state()
    mtrand.set_bit_generator(_of_samples)
    try:
        yield
    finally:
        random.setstate(python)
        mtrand.set_bit_generator(own)
        torch.set_rng_state(ours)
