"""The random generators of this process, from which tasks and models draw.

They are Python's, NumPy's and torch's. A checkpoint holds their states.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def read(device: torch.device) -> dict[str, Any]:
    """The states of Python's, NumPy's and torch's generators, of tensors, numbers and tuples."""
    name, keys, *rest = np.random.get_state(legacy=True)
    assert name == "MT19937"
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
    }
    if device.type != "cpu":
        states[device.type] = torch.cuda.get_rng_state(device)
    return states


def write(states: dict[str, Any], device: torch.device) -> None:
    """Restore the states of the generators that ``read`` returned."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    keys, *rest = states["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if device.type != "cpu" and device.type in states:
        torch.cuda.set_rng_state(states[device.type], device)


_of_samples = np.random.MT19937()


@contextmanager
def reading() -> Iterator[None]:
    """Read samples in this block; after it the model draws as if they had drawn nothing.

    It is used for a batch that other processes read as well: to change NumPy's generator drops the
    second half of a pair of normal numbers, which must not depend on the reader.
    """
    python, torch_state = random.getstate(), torch.get_rng_state()
    numpy: Any = np.random  # whose stubs lack the two functions
    bit_generator = numpy.get_bit_generator()
    numpy.set_bit_generator(_of_samples)
    try:
        yield
    finally:
        random.setstate(python)
        numpy.set_bit_generator(bit_generator)
        torch.set_rng_state(torch_state)


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
    """Seed the generators for a block by ``seed(first, rank)``, and restore them after it."""
    before = read(device)
    seed(first, rank)
    try:
        yield
    finally:
        write(before, device)
