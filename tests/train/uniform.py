"""How evenly a bijection mixes: statistics that are standard normal for a random permutation.

Each is a chi-squared statistic of counts that should all be alike, made normal by the cube root of
Wilson and Hilferty (Proceedings of the National Academy of Sciences 17, 1931).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from spawnlaunch.train.order import Bijection, Ints

PLACES = 1 << 18  # that are looked at, of all
CELLS = 64


def of_counts(counts: Ints) -> float:
    """How far counts are from being all alike, as a normal number: high is uneven."""
    expected, free = counts.sum() / counts.size, counts.size - 1
    squared = float(((counts - expected) ** 2).sum() / expected)
    spread = 2 / (9 * free)
    return float(((squared / free) ** (1 / 3) - (1 - spread)) / spread**0.5)


def of_cells(*cells: Ints) -> float:
    """As ``of_counts``, of how often each combination of cells occurs."""
    joint = np.zeros_like(cells[0])
    for each in cells:
        joint = joint * CELLS + each
    return of_counts(np.bincount(joint, minlength=CELLS ** len(cells)))


def statistics(length: int, seed: int) -> Iterator[tuple[str, float]]:
    """Names and values for the places of one order, which begin anywhere."""

    def cells(samples: Ints) -> Ints:
        """The part of the whole that each is in, of so many equal ones."""
        return (samples * (CELLS / length)).astype(np.int64)

    begin = int(np.random.default_rng(seed).integers(length - 2 * PLACES))
    order, other = Bijection(length, seed, 0), Bijection(length, seed, 1)
    places = np.arange(begin, begin + PLACES)
    here, behind = order.at(places), order.at(places + 1)
    yield "places", of_cells(cells(here))
    yield "neighbours", of_cells(cells(here), cells(behind))
    for step in (2, 3, 8, 32, 1024, order.base):
        yield f"{step} apart", of_cells(cells(here), cells(order.at(places + step)))
    yield "differences", of_cells(cells((behind - here) % length))
    yield "second differences", of_cells(cells((order.at(places + 2) - 2 * behind + here) % length))
    for base in (2, 3, 5, 64):
        used = length // base * base  # the numbers below, of which each remainder has as many
        pair = here % base * base + behind % base
        yield f"modulo {base}", of_counts(np.bincount(pair[(here < used) & (behind < used)]))
    yield "epochs", of_cells(cells(here), cells(other.at(places)))
    yield "back", of_cells(cells(order.places(places)), cells(order.places(places + 1)))


def of_seeds(length: int, count: int) -> Iterator[tuple[str, float]]:
    """Names and values of one place over so many seeds, and of it beside its neighbour."""
    found = np.array(
        [Bijection(length, seed, 0).at(np.array([5, 6, length - 1])) for seed in range(count)]
    )
    cells = (found * (CELLS / length)).astype(np.int64)
    for number, place in enumerate(("the sixth", "the seventh", "the last")):
        yield place, of_cells(cells[:, number])
    yield "sixth and seventh", of_counts(np.bincount(cells[:, 0] // 8 * 8 + cells[:, 1] // 8))


def worst(found: Callable[[], Iterator[tuple[str, float]]]) -> tuple[float, str]:
    """The most uneven of the statistics, and its name."""
    return max((value, name) for name, value in found())
