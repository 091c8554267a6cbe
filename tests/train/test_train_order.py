"""The order of samples is decided by the seed and the epoch, and by nothing else."""

from dataclasses import replace
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.train.order import Order, Shuffled, permutation, share

lengths = st.integers(1, 200)
seeds = st.integers(0, 2**31 - 1)
small = st.integers(1, 7)


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


@given(lengths, seeds, st.integers(0, 1000))
def test_an_epoch_visits_every_sample_once(length: int, seed: int, epoch: int) -> None:
    assert sorted(permutation(length, seed, epoch)) == list(range(length))


@given(lengths, seeds, st.integers(0, 1000))
def test_seed_and_epoch_alone_decide_the_order(length: int, seed: int, epoch: int) -> None:
    first = permutation(length, seed, epoch)
    permutation(length, seed + 1, epoch)
    assert (permutation(length, seed, epoch) == first).all()


def test_seeds_and_epochs_give_different_orders() -> None:
    orders = {tuple(permutation(50, seed, epoch)) for seed in range(8) for epoch in range(8)}
    assert len(orders) == 64


def test_the_order_is_the_same_with_every_library_version() -> None:
    assert permutation(8, 1, 2).tolist() == [5, 6, 3, 2, 1, 0, 4, 7]


@given(lengths, seeds, st.integers(1, 40), small, small, small)
def test_ranks_and_passes_do_not_change_a_global_batch(
    length: int, seed: int, batch: int, steps: int, world: int, accumulate: int
) -> None:
    alone = Order(Shuffled(length, seed), batch)
    shared = replace(alone, accumulate=accumulate)
    assert joined(shared, steps, world) == [one.indices for one in alone.batches(0, steps)]


@given(lengths, seeds, st.integers(1, 40), small)
def test_the_stream_is_one_permutation_after_the_other(
    length: int, seed: int, batch: int, world: int
) -> None:
    steps = 2 * length // batch + 1
    stream = list(chain(*joined(Order(Shuffled(length, seed), batch), steps, world)))
    assert stream[:length] == permutation(length, seed, 0).tolist()
    assert (
        stream[length : 2 * length] == permutation(length, seed, 1).tolist()[: len(stream) - length]
    )


@given(lengths, seeds, small, small, small)
def test_a_run_that_goes_on_takes_what_would_have_come(
    length: int, seed: int, batch: int, steps: int, more: int
) -> None:
    order = Order(Shuffled(length, seed), batch)
    whole = list(order.batches(0, steps + more))
    assert list(order.batches(steps * batch, more)) == whole[steps:]


@given(st.integers(0, 100), small)
def test_shares_are_as_even_as_can_be(total: int, parts: int) -> None:
    shares = [share(total, parts, part) for part in range(parts)]
    assert list(chain(*shares)) == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
