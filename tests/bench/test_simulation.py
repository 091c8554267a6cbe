"""A sample of tests/bench/simulation.py: the rule is right about as often as it says."""

from tests.bench.simulation import WORKLOADS, Count, simulate

TABLES = 30  # per kind of noise


def test_the_rule_is_hardly_ever_wrong_and_finds_what_there_is():
    total, three = Count(), {}
    for noise, kind, count in simulate(TABLES, seed=1):
        total = total.plus(count)
        if kind == "three":
            three[noise] = count.found / count.differ
    assert total.tables == 9 * TABLES
    assert total.false_claims <= 0.05 * total.tables + 7  # two and a half standard deviations
    assert total.wrong_advice <= 0.01 * total.tables + 3
    assert total.missed <= 0.06 * total.intervals
    assert total.rounds < 80 * len(WORKLOADS) * total.tables
    assert three["lognormal"] >= 0.8
