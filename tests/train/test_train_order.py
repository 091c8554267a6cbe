"""The order of samples is decided by the seed and the epoch, and by nothing else."""

import functools
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.train.order import (
    ByLength,
    Kind,
    Order,
    Shuffled,
    permutation,
    share,
    steps_of,
)

lengths = st.integers(1, 200)
seeds = st.integers(0, 2**31 - 1)
small = st.integers(1, 7)
RANKS = 3  # at most, times as many passes


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    """Any kind of order, of at least as many samples as there are passes in a step."""
    seed = draw(seeds)
    length = draw(st.integers(RANKS**2, 200))
    made: Kind = Shuffled(length, seed)
    if draw(st.booleans()):
        tokens = np.array(draw(st.lists(st.integers(0, 30), min_size=length, max_size=length)))
        least = RANKS**2 * max(1, int(tokens.max()))
        made = ByLength(made, tokens, seed, draw(st.integers(least, 4 * least)))
    return made


def joined(order: Order, steps: int, world: int) -> list[list[int]]:
    """The global batches of an order for one rank, when ``world`` ranks share them."""
    ranks = [replace(order, rank=rank, world_size=world) for rank in range(world)]
    parts = [list(rank.batches(0, steps)) for rank in ranks]
    assert all(len(part) == steps * order.accumulate for part in parts)
    batches = []
    for step in range(steps):
        own = slice(step * order.accumulate, (step + 1) * order.accumulate)
        taken = (batch.indices for part in parts for batch in part[own])
        batches.append(list(chain(*taken)))
    return batches


def test_seeds_and_epochs_give_different_orders() -> None:
    orders = {tuple(permutation(50, seed, epoch)) for seed in range(8) for epoch in range(8)}
    assert len(orders) == 64


def test_the_orders_are_the_same_with_every_library_version() -> None:
    assert permutation(8, 1, 2).tolist() == [5, 6, 3, 2, 1, 0, 4, 7]
    tokens = np.array([5, 1, 4, 1, 9, 2, 6, 3])
    by_length = ByLength(Shuffled(8, 1), tokens, 1, 9)
    assert by_length.at(2, np.arange(8)).tolist() == [7, 2, 6, 0, 3, 1, 5, 4]


@given(kinds(), st.integers(RANKS**2, 40), small, st.integers(1, RANKS), st.integers(1, RANKS))
def test_ranks_and_passes_do_not_change_a_global_batch(
    kind: Kind, batch: int, steps: int, world: int, accumulate: int
) -> None:
    alone = Order(kind, batch)
    shared = replace(alone, accumulate=accumulate)
    assert joined(shared, steps, world) == [one.indices for one in alone.batches(0, steps)]
    ranks = [replace(shared, rank=rank, world_size=world) for rank in range(world)]
    assert all(one.indices for rank in ranks for one in rank.batches(0, steps))


@given(kinds(), st.integers(1, 40))
def test_the_stream_has_each_epoch_whole_and_one_behind_the_other(kind: Kind, batch: int) -> None:
    order, places, taken = Order(kind, batch), list[int](), list[int]()
    for one in order.batches(0, 2 * kind.length):  # a step has a sample at least
        places += one.places
        taken += one.indices
        if len(places) >= 2 * kind.length:
            break
    assert sorted(places) == list(range(len(places)))
    at = dict(zip(places, taken, strict=True))
    for epoch in range(2):
        own = [at[epoch * kind.length + place] for place in range(kind.length)]
        assert own == kind.at(epoch, np.arange(kind.length)).tolist()
        assert sorted(own) == list(range(kind.length))


@given(kinds(), st.integers(1, 40), small, small)
def test_a_run_that_goes_on_takes_what_would_have_come(
    kind: Kind, batch: int, steps: int, more: int
) -> None:
    order = Order(kind, batch)
    whole = list(order.batches(0, steps + more))
    behind = sum(len(one.indices) for one in whole[:steps])
    if isinstance(kind, ByLength):  # made anew, as after a kill
        order = Order(ByLength(kind.kind, kind.lengths, kind.seed, kind.budget), batch)
    assert list(order.batches(behind, more)) == whole[steps:]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(1, 20), small)
def test_steps_hold_their_budget_and_a_sample_for_each_pass(
    tokens: list[int], passes: int, more: int
) -> None:
    rising = np.sort(tokens)
    budget = passes * int(rising[-1]) + more
    sizes = steps_of(rising, budget, int(rising[-1]))
    assert sum(sizes) == len(tokens)
    assert min(sizes) >= min(passes, len(tokens))
    ends = np.cumsum(sizes)
    padded = [size * int(rising[end - 1]) for size, end in zip(sizes, ends, strict=True)]
    least = -(-budget // int(rising[-1]))
    # What was left at the end is one more for each step, or a few where there are few steps.
    assert all(one <= budget + least * int(rising[-1]) for one in padded)


@functools.cache
def lognormal(sigma: float) -> np.ndarray:
    drawn = np.random.default_rng(0).lognormal(5, sigma, 100_000)
    return np.maximum(1, drawn).astype(np.int64)


@pytest.mark.full
@pytest.mark.parametrize(("sigma", "world", "samples"), [(0.5, 1, 16), (1.5, 8, 16), (1.5, 8, 256)])
def test_samples_of_any_lengths_are_padded_by_less_than_a_twentieth(
    sigma: float, world: int, samples: int
) -> None:
    tokens = lognormal(sigma)
    budget = max(round(samples * tokens.mean()), world * int(tokens.max()))
    order, first = Order(ByLength(Shuffled(len(tokens), 0), tokens, 0, budget), 1), 0
    used = padded = 0
    while first < len(tokens):
        own = [
            tokens[list(replace(order, rank=rank, world_size=world).batch(first, 0).indices)]
            for rank in range(world)
        ]
        used += sum(int(one.sum()) for one in own)
        padded += sum(int(one.max()) * len(one) for one in own)
        first += order.count(first)
    assert first == len(tokens)  # an epoch ends where a step does
    assert padded < used / 0.95


@given(st.integers(0, 100), small)
def test_shares_are_as_even_as_can_be(total: int, parts: int) -> None:
    shares = [share(total, parts, part) for part in range(parts)]
    assert list(chain(*shares)) == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
