"""The rule of the bench on workloads whose truth is known; `python -m tests.bench.simulation`."""

import pytest

from tests.bench import simulation


@pytest.mark.parametrize("noise", simulation.HELD, ids=lambda noise: noise.__name__)
@pytest.mark.parametrize(
    "count",
    [pytest.param(60, marks=pytest.mark.full), pytest.param(1000, marks=pytest.mark.nightly)],
)
def test_the_rule_is_hardly_ever_wrong_and_finds_3_percent(noise: simulation.Noise, count: int):
    found = simulation.simulate(noise, count)
    chance = 2.5 * (0.05 * 0.95 / count) ** 0.5
    assert found.false <= 0.05 + chance
    assert found.power >= 0.8
