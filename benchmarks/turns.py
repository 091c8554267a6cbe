"""Let all rivals take turns within each round, in an order that is drawn for it."""

import random
import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def turns(rounds: int, rivals: Sequence[T]) -> Iterator[T]:
    """Yield every rival once a round, and print the end of each round on stderr.

    The draws are the same in every run.
    """
    drawn = random.Random(0)
    for number in range(rounds):
        yield from drawn.sample(rivals, len(rivals))
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
