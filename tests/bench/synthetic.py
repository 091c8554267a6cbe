"""Samples with known answers."""

import numpy as np

from spawnlaunch.bench import stats

ROUNDS = 12


def paired(
    arm: list[float], other: list[float], higher_is_better: bool, error: float = stats.ERROR
) -> stats.Comparison:
    """The comparison of a table that has one."""
    return stats.judge([stats.pair(arm, other, higher_is_better)], error)[0]


def rounds(
    ratio: float, seed: int, noise: float = 0.05, drift: float = 0.3, count: int = ROUNDS
) -> tuple[list[float], list[float]]:
    """Rounds of an arm that is `ratio` times as good as the other one, and of that one.

    Both suffer from a machine that gets slower and faster from round to round by `drift`, and each
    of them from noise of its own; both are standard deviations of logarithms, with a few outliers,
    as real machines have them.
    """
    rng = np.random.default_rng(seed)
    machine = np.cumsum(rng.normal(0, drift, count))
    own = rng.standard_t(3, (2, count)) * noise
    arm = 100.0 * ratio * np.exp(machine + own[0])
    other = 100.0 * np.exp(machine + own[1])
    return arm.tolist(), other.tolist()
