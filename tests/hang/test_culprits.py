"""Who is waited for, in generated trainings: those that are late in each step, and nobody else."""

import json
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.hang import asked, culprits, flight
from tests.hang.training import BEGAN, MS, Noise, Training, answers, look
from tests.support.matrix import mostly_full

SEEDS = mostly_full([range(30), range(30, 150)])
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


def run(draw: Random, least: int = 2, **other: object) -> Training:
    return Training(draw.randint(least, 8), draw.choice([15, 30, 100, 250]), **other)  # type: ignore[arg-type]


Drawn = tuple[Training, list[int]]  # and who is to be named


def one_late(draw: Random) -> Drawn:
    of = run(draw, noise=SLIGHT)
    late = draw.randrange(of.size)
    return of._replace(late={late: draw.uniform(0.15, 0.7)}), [late]


def two_late(draw: Random) -> Drawn:
    of, share = run(draw, least=5, noise=SLIGHT), draw.uniform(0.15, 0.7)
    late = sorted(draw.sample(range(of.size), 2))
    return of._replace(late=dict.fromkeys(late, share)), late


def a_slow_node(draw: Random) -> Drawn:
    size, share = draw.choice([4, 6, 8]), draw.uniform(0.2, 0.7)
    late = [*range(size // 2, size)]
    return Training(size, 100, late=dict.fromkeys(late, share), noise=SLIGHT), late


def most_late(draw: Random) -> Drawn:
    """As two of three ranks that share a core: the others are early."""
    size, share = draw.randint(3, 8), draw.uniform(0.15, 0.7)
    late = draw.sample(range(size), draw.randint(size // 2 + 1, size - 1))
    return Training(size, 100, late=dict.fromkeys(late, share), noise=SLIGHT), []


def late_once_for_long(draw: Random) -> Drawn:
    of = run(draw, noise=SLIGHT)
    return of._replace(once={draw.randrange(of.size): draw.uniform(2, 50)}), []


def in_one_of_several_groups(draw: Random) -> Drawn:
    """Its neighbour comes late to the others because of it, and is not named."""
    groups, late = {"a": (0, 1), "b": (2, 3), "c": (0, 2), "d": (1, 3)}, draw.randrange(4)
    return Training(4, 100, late={late: 0.4}, groups=groups, noise=SLIGHT), [late]


def in_one_group_only(draw: Random) -> Drawn:
    groups, late = {"a": (0, 1, 2), "b": (3, 4, 5)}, draw.randrange(6)
    return Training(6, 100, late={late: 0.4}, groups=groups, noise=SLIGHT, has_world=False), [late]


KINDS = (one_late, two_late, a_slow_node, most_late, late_once_for_long, in_one_of_several_groups,
         in_one_group_only)  # fmt: skip


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_who_is_late_in_each_step_is_named_with_the_line(
    kind: Callable[[Random], Drawn], seeds: range
):
    for seed in seeds:
        of, late = kind(Random(seed))
        found = culprits.judged(answers(of, seed)).culprits
        assert [each.rank for each in found] == late, (seed, of)
        if of.steps > 15:  # else there are fewer looks than it takes
            assert {each.at for each in found} <= {"train.py:31"}, (seed, of)
            assert {each.before for each in found} <= {"train.py:88 (all_reduce)"}, (seed, of)


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_where_all_differ_alike_nobody_is_named(noise: Noise, seeds: range):
    found = [culprits.judged(answers(run(Random(seed), noise=noise), seed)) for seed in seeds]
    assert sum(bool(each.culprits) for each in found) <= 1


def test_how_long_it_is_waited_for():
    (one,) = culprits.judged(answers(Training(4, 100, late={2: 0.5}))).culprits
    assert one.late_s == pytest.approx(0.1, rel=0.01)
    assert one.every_s == pytest.approx(0.2, rel=0.03)
    assert not one.is_hang
    shares = culprits.judged(answers(Training(4, 100, late={2: 0.5}))).shares
    assert shares[2].late_share == pytest.approx(0.5, abs=0.02)
    assert shares[0].wait_share == pytest.approx(0.5, abs=0.02)
    assert shares[2].wait_share == pytest.approx(0.0, abs=0.02)


def test_who_has_not_come_for_long_hangs_and_nobody_who_waits_for_it():
    """Some may have gone on: a broadcast is over for its root while others wait in it."""
    for seed in range(30):
        draw = Random(seed)
        size = draw.randint(2, 8)
        told = answers(Training(size, 100), seed)
        hung, missed = draw.randrange(size), draw.randint(1, 3)
        now = told[hung].when + 60_000 * MS
        for rank, each in told.items():
            lacks = missed if rank == hung else draw.randrange(missed)
            calls = each.record.calls[: len(each.record.calls) - lacks]
            told[rank] = each._replace(when=now, record=each.record._replace(calls=calls))
        looks = [look(now - i * MS, 31) for i in range(20)]
        told[hung] = told[hung]._replace(samples=looks)
        (one,) = culprits.judged(told).culprits
        assert (one.rank, one.at, one.is_hang) == (hung, "train.py:31", True), seed
        assert one.late_s == pytest.approx(60, rel=0.02)


def test_who_has_left_its_group_is_missed_only_where_others_wait_in_it():
    """As one that has destroyed it, and works on alone."""
    for seed in range(30):
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


def test_what_a_rank_did_after_another_had_answered_does_not_count():
    early, late = answers(Training(2, 100)), answers(Training(2, 700))
    verdict = culprits.judged({0: early[0], 1: late[1]})
    assert not verdict.culprits
    assert verdict.shares == culprits.judged(early).shares


def test_an_answer_that_another_node_reads_is_the_same_by_its_clock():
    for answer in answers(Training(2, 30)).values():
        sent = json.loads(json.dumps(asked.as_json(answer)))
        assert asked.from_json(sent) == answer
        later = asked.from_json(sent, 5)
        assert later.until(answer.when + 4).samples == later.samples
        assert [call.when - 5 for call in later.record.calls] == [
            call.when for call in answer.record.calls
        ]
        few = asked.from_json(json.loads(json.dumps(asked.as_json(answer, 3)))).record
        assert (few.calls, few.is_whole) == (answer.record.calls[-3:], False)


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
LOOKS = st.builds(
    asked.StackSample, st.integers(BEGAN, BEGAN + 9000), st.sampled_from(["train.py:31", ""]),
    st.booleans(),
)  # fmt: skip
ANSWERS = st.builds(
    asked.Testimony, threads=st.just(""), samples=st.lists(LOOKS, max_size=15), record=RECORDS,
    when=st.one_of(st.integers(BEGAN, BEGAN + 20_000), st.integers(0, 1 << 63)),
    cost_s=st.just(0.0),
)  # fmt: skip


@given(st.dictionaries(st.integers(0, 4), ANSWERS))
def test_no_records_break_it(told: dict[int, asked.Testimony]):
    verdict = culprits.judged(told)
    assert {each.rank for each in verdict.culprits} <= set(told)
    notes = culprits.notes(verdict._replace(mismatch=None))
    assert len(notes) <= len(verdict.culprits)
    for note in notes:
        assert note.words.startswith("the others wait for rank")
        assert str(note.rank) in note.words


def test_ranks_that_hang_before_one_line_have_one_sentence_and_slow_ones_each_their_own():
    hang = culprits.Culprit(2, 4.2, 0.0, "a.py:7 (all_reduce)", "a.py:5")
    slow = culprits.Culprit(5, 0.02, 0.029, "a.py:7 (all_reduce)", "")
    found = [hang, hang._replace(rank=3, late_s=5.0), slow]
    notes = culprits.notes(culprits.Verdict({}, found))
    assert [(note.rank, note.words) for note in notes] == [
        (2, "the others wait for ranks 2-3, 5.0 s so far, before a.py:7 (all_reduce); "
            "they are at a.py:5"),
        (5, "the others wait for rank 5, 20 ms of each 29 ms, before a.py:7 (all_reduce)"),
    ]  # fmt: skip
