"""Who is waited for, in generated trainings: those that are late in each step, and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.rollcall import asked, culprits, flight
from tests.rollcall.training import BEGAN, MS, Noise, Training, answers, renamed, stack

SEEDS = 100
# By which all ranks differ alike.
NOISES: dict[str, Noise] = {
    "nothing": lambda _: 0.0,
    "a little": lambda draw: draw.gauss(0, 0.05),
    "much": lambda draw: draw.gauss(0, 0.5),
    "long tails": lambda draw: draw.expovariate(2),
    "hiccups": lambda draw: 3.0 * (draw.random() < 0.05),
    "rare ones": lambda draw: 20.0 * (draw.random() < 0.005),
}
SLIGHT = NOISES["a little"]


def named(of: Training, seed: int = 0) -> list[int]:
    return [each.rank for each in culprits.judged(answers(of, seed)).culprits]


def run(draw: Random, least: int = 2, **other: object) -> Training:
    return Training(draw.randint(least, 8), draw.choice([15, 30, 100, 250]), **other)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_where_all_differ_alike_nobody_is_named(noise: Noise):
    of = (run(Random(seed), noise=noise) for seed in range(SEEDS))
    assert sum(bool(named(each, seed)) for seed, each in enumerate(of)) <= 1


def one_late(draw: Random) -> Training:
    of = run(draw, noise=SLIGHT)
    return of._replace(late={draw.randrange(of.size): draw.uniform(0.15, 0.7)})


def two_late(draw: Random) -> Training:
    of, share = run(draw, least=5, noise=SLIGHT), draw.uniform(0.15, 0.7)
    return of._replace(late=dict.fromkeys(draw.sample(range(of.size), 2), share))


def a_slow_node(draw: Random) -> Training:
    size, share = draw.choice([4, 6, 8]), draw.uniform(0.2, 0.7)
    return Training(size, 100, late=dict.fromkeys(range(size // 2, size), share), noise=SLIGHT)


@pytest.mark.parametrize("kind", [one_late, two_late, a_slow_node])
def test_who_is_late_in_each_step_is_named_with_the_line(kind: Callable[[Random], Training]):
    for seed in range(SEEDS):
        of = kind(Random(seed))
        found = culprits.judged(answers(of, seed)).culprits
        assert [each.rank for each in found] == sorted(of.late), (seed, of)
        if of.steps > 15:  # else there are fewer looks than it takes
            assert {each.at for each in found} == {"train.py:31"}, (seed, of)
            assert {each.before for each in found} == {"train.py:88 (all_reduce)"}, (seed, of)


def test_where_most_are_late_the_others_are_early_and_nobody_is_named():
    """As two of three ranks that share a core."""
    for seed in range(SEEDS):
        draw = Random(seed)
        size, share = draw.randint(3, 8), draw.uniform(0.15, 0.7)
        late = draw.sample(range(size), draw.randint(size // 2 + 1, size - 1))
        assert not named(Training(size, 100, late=dict.fromkeys(late, share), noise=SLIGHT), seed)


def test_how_long_it_is_waited_for():
    (one,) = culprits.judged(answers(Training(4, 100, late={2: 0.5}))).culprits
    assert one.late_s == pytest.approx(0.1, rel=0.01)
    assert one.every_s == pytest.approx(0.2, rel=0.03)
    assert not one.is_hang
    shares = culprits.judged(answers(Training(4, 100, late={2: 0.5}))).shares
    assert shares[2].waited_for == pytest.approx(0.5, abs=0.02)
    assert shares[0].waits == pytest.approx(0.5, abs=0.02)
    assert shares[2].waits == pytest.approx(0.0, abs=0.02)


def test_who_is_late_once_for_long_is_not_named():
    for seed in range(SEEDS):
        draw = Random(seed)
        of = run(draw, noise=SLIGHT)
        assert not named(of._replace(once={draw.randrange(of.size): draw.uniform(2, 50)}), seed)


def test_of_several_groups_the_rank_is_named_that_all_wait_for():
    """Its neighbour comes late to the others because of it, and is not."""
    groups = {"a": (0, 1), "b": (2, 3), "c": (0, 2), "d": (1, 3)}
    for late in range(4):
        assert named(Training(4, 100, late={late: 0.4}, groups=groups, noise=SLIGHT)) == [late]


def test_ranks_that_meet_in_one_group_only():
    groups = {"a": (0, 1, 2), "b": (3, 4, 5)}
    for late in range(6):
        of = Training(6, 100, late={late: 0.4}, groups=groups, noise=SLIGHT, has_world=False)
        assert named(of) == [late]


def test_the_numbers_of_the_ranks_do_not_matter():
    for seed in range(20):
        draw = Random(seed)
        of = one_late(draw)
        to = draw.sample(range(20), of.size)
        told = answers(of, seed)
        plain, other = culprits.judged(told), culprits.judged(renamed(told, to))
        assert [each._replace(rank=to[each.rank]) for each in plain.culprits] == [*other.culprits]
        assert {to[rank]: share for rank, share in plain.shares.items()} == other.shares


def test_who_has_not_come_for_long_hangs_and_nobody_who_waits_for_it():
    """Some may have gone on: a broadcast is over for its root while others wait in it."""
    for seed in range(SEEDS):
        draw = Random(seed)
        size = draw.randint(2, 8)
        told = answers(Training(size, 100), seed)
        hung, missed = draw.randrange(size), draw.randint(1, 3)
        now = told[hung].when + 60_000 * MS
        for rank, each in told.items():
            lacks = missed if rank == hung else draw.randrange(missed)
            calls = each.record.calls[: len(each.record.calls) - lacks]
            told[rank] = each._replace(when=now, record=each.record._replace(calls=calls))
        looks = [asked.Look(now - i * MS, stack(31)) for i in range(20)]
        told[hung] = told[hung]._replace(looks=looks)
        (one,) = culprits.judged(told).culprits
        assert (one.rank, one.at, one.is_hang) == (hung, "train.py:31", True), seed
        assert one.late_s == pytest.approx(60, rel=0.02)


def test_who_has_left_its_group_is_missed_only_where_others_wait_in_it():
    """As one that has destroyed it, and works on alone."""
    for seed in range(SEEDS):
        draw = Random(seed)
        told = answers(Training(draw.randint(2, 8), 100), seed)
        left, are_over = draw.randrange(len(told)), draw.random() < 0.5
        for rank, each in told.items():
            calls = [one._replace(is_over=True) for one in each.record.calls]
            calls[-1] = calls[-1]._replace(is_over=are_over)
            record = each.record._replace(calls=tuple(calls) * (rank != left))
            told[rank] = each._replace(when=each.when + 60_000 * MS, record=record)
        verdict = culprits.judged(told)
        assert [one.rank for one in verdict.culprits] == ([] if are_over else [left]), seed
        assert (flight.disagreement({r: one.record for r, one in told.items()}) is None) == are_over


CALLS = st.builds(
    flight.Collective, group=st.sampled_from("ab"), number=st.integers(-3, 9),
    name=st.sampled_from(["all_reduce", "broadcast"]), what=st.sampled_from(["", "Float[4]"]),
    place=st.just(""), is_over=st.booleans(),
    when=st.one_of(st.integers(BEGAN, BEGAN + 9000), st.integers(0, 1 << 63)),
)  # fmt: skip
RECORDS = st.builds(
    flight.Record, st.lists(CALLS, max_size=9).map(tuple),
    st.dictionaries(st.sampled_from("ab"), st.frozensets(st.integers(0, 4))),
)  # fmt: skip
LOOKS = st.builds(asked.Look, st.integers(BEGAN, BEGAN + 9000), st.sampled_from([stack(31), ()]))
ANSWERS = st.builds(
    asked.Testimony, threads=st.just(""), looks=st.lists(LOOKS, max_size=15), record=RECORDS,
    when=st.one_of(st.integers(BEGAN, BEGAN + 20_000), st.integers(0, 1 << 63)),
    cost_s=st.just(0.0),
)  # fmt: skip


@given(st.dictionaries(st.integers(0, 4), ANSWERS))
def test_no_records_break_it(told: dict[int, asked.Testimony]):
    verdict = culprits.judged(told)
    assert {each.rank for each in verdict.culprits} <= set(told)
    assert all(each.words for each in verdict.culprits)
