"""What a fresh process draws from the system's entropy, and forks would share.

Python's random and numpy's legacy generator are seeded at their import, torch's default generators
when the library is loaded, and multiprocessing draws a key. A worker that is forked draws all of
them anew. What a preloaded module has seeded itself, as with torch.manual_seed(0), stays: the
import would do so in every fresh process.

Generators that a module makes for itself at its import, and the hashes of strings (PYTHONHASHSEED),
are the same in all workers of an image.
"""

from __future__ import annotations

import os
import random
import sys
from types import ModuleType

from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

WORDS = 624  # of the state of a Mersenne twister, after which it begins another round
MOST_ROUNDS = 1000  # that modules may have drawn at their import
# A seed of torch's own has 64 bits of entropy. Who seeds on purpose takes a smaller number; one of
# a clock in nanoseconds is larger too, and as much another one in every fresh process.
LEAST_ENTROPY = 1 << 32


class Seeded(NamedTuple):
    """What was seeded on purpose by the modules."""

    random: tuple[Any, ...] | None  # the state
    numpy: bool
    torch: bool


def seeded_since(before: tuple[Any, ...]) -> Seeded:
    """What the import has seeded; `before` it random was in that state."""
    now = random.getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return Seeded(
        random=None if _is_later(before[1][:WORDS], now[1][:WORDS]) else now,
        numpy=numpy is not None and _is_numpy_seeded(numpy),
        torch=torch is not None and torch.initial_seed() < LEAST_ENTROPY,
    )


def draw_anew(seeded: Seeded) -> None:
    """In a forked worker: what a fresh process would have drawn. os.fork has seeded random."""
    if seeded.random is not None:
        random.setstate(seeded.random)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and not seeded.numpy:
        numpy.random.seed()
    if torch is not None and not seeded.torch:
        torch.seed()  # of all devices: those that are not initialised, when they will be
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    uuid = sys.modules.get("uuid")
    if uuid is not None:
        uuid.__dict__.update(_node=None, _last_timestamp=None)  # drawn where there is no MAC


def _is_numpy_seeded(numpy: ModuleType) -> bool:
    generator = numpy.random.mtrand._rand._bit_generator
    if type(generator) is not numpy.random.MT19937 or generator.seed_seq is None:
        return True
    first = numpy.random.MT19937(generator.seed_seq)
    before, now = (each.state["state"]["key"].tolist() for each in (first, generator))
    return not _is_later(before, now)


def _is_later(before: Sequence[int], now: Sequence[int]) -> bool:
    """Whether a twister comes from one state to the other by drawing alone."""
    twister = random.Random()
    twister.setstate((3, (*before, WORDS), None))  # 3: random's VERSION
    for _ in range(MOST_ROUNDS):
        if twister.getstate()[1][:WORDS] == tuple(now):
            return True
        twister.getrandbits(32 * WORDS)
    return False
