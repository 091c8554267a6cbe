"""All rivals take turns within each round, beginning with another one each time."""

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def turns(rounds: int, rivals: Sequence[T]) -> Iterator[T]:
    """Every rival once a round; who is next is told on stderr after each round."""
    for number in range(rounds):
        first = number % len(rivals)
        yield from (*rivals[first:], *rivals[:first])
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
