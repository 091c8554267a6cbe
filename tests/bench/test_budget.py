"""What a budget can decide, and which workloads are left out."""

import pytest

from spawnlaunch.bench import budget, stats
from spawnlaunch.bench.budget import Cost

LEVEL = stats.ERROR / 100


def test_what_counts_most_for_its_time_is_kept_and_what_is_too_noisy_comes_last():
    train = Cost("train", 0.4, 2.0, 0.02, LEVEL)
    loader = Cost("loader", 0.2, 2.0, 0.02, LEVEL)
    compute = Cost("compute", 0.05, 0.5, 0.01, LEVEL)
    noisy = Cost("allreduce", 0.3, 0.5, 1.0, LEVEL)

    def names(left_s: float, least: int = 1) -> list[str]:
        chosen = budget.kept([compute, noisy, loader, train], left_s, least=least)
        return [each.workload for each in chosen]

    assert names(1000) == ["train", "compute", "loader", "allreduce"]
    assert names(160) == ["train", "compute"]
    needs = [each.need_s / each.round_s for each in (train, noisy)]
    assert needs == [stats.EQUAL_ROUNDS, stats.SMALL_ROUNDS]
    assert names(100) == ["compute", "allreduce"]
    slower = train._replace(round_s=1.9, weight=1.0)
    left_s = 1.9 * slower.fewest
    assert left_s < 30 * slower.round_s  # no time to find two arms equal
    assert [each.workload for each in budget.kept([slower], left_s, least=0)] == ["train"]
    assert budget.kept([slower], left_s - 0.1, least=0) == []
    assert names(1) == ["compute"]
    assert names(1, least=0) == []
    chosen = [train, compute]
    assert budget.shares_s(chosen, 200) == pytest.approx([160, 40])
