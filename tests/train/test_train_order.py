"""The order of samples is decided by the seed and the epoch, and by nothing else."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from train.order import RankBatches, permutation

lengths = st.integers(1, 200)
seeds = st.integers(0, 2**31 - 1)
small = st.integers(1, 7)


def joined(length: int, seed: int, batch: int, steps: int, world: int) -> list[list[int]]:
    """The global batches: those of all ranks, joined in rank order."""
    ranks = [RankBatches(length, seed, batch, steps, rank, world) for rank in range(world)]
    return [list(chain(*parts)) for parts in zip(*ranks, strict=True)]


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
    assert permutation(8, seed=1, epoch=2).tolist() == [5, 6, 3, 2, 1, 0, 4, 7]


@given(lengths, seeds, small, small, small)
def test_the_number_of_ranks_does_not_change_a_global_batch(
    length: int, seed: int, batch: int, steps: int, world: int
) -> None:
    alone = RankBatches(length, seed, batch * world, steps)
    assert joined(length, seed, batch, steps, world) == list(alone)


@given(lengths, seeds, small, small)
def test_the_stream_is_one_permutation_after_the_other(
    length: int, seed: int, batch: int, world: int
) -> None:
    steps = 2 * length // (batch * world) + 1
    stream = list(chain(*joined(length, seed, batch, steps, world)))
    assert stream[:length] == permutation(length, seed, 0).tolist()
    assert (
        stream[length : 2 * length] == permutation(length, seed, 1).tolist()[: len(stream) - length]
    )
