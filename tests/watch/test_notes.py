"""What stands out among ranks, and what does not."""

from typing import Any

import pytest

from spawnlaunch.hang import culprits
from spawnlaunch.hang.held import MUTE, Held
from spawnlaunch.watch import notes
from spawnlaunch.watch.usage import Sample
from tests.watch.samples import device, over_time, progress, sample

NOW = 50.5  # half a second after the last step


def found(*samples: Sample, now: float = NOW) -> list[tuple[int, str]]:
    """Whom something is said of, and what kind it is; each has been looked at once."""
    noted = notes.notes({one.rank: [one] for one in samples}, now)
    return [(note.rank, note.kind) for note in noted]


def of_loop(rank: int, **told: Any) -> Sample:
    return sample(rank, progress=progress(**told))


def waiting(*ranks: int, **told: Any) -> list[Sample]:
    return [of_loop(rank, phase="wait", **told) for rank in ranks]


LATE = 50.0 + notes.STUCK_S
SLOW_STEPS = [*waiting(0, wait_s=5.0), of_loop(1, wait_s=5.0)]


@pytest.mark.parametrize(
    ("samples", "now", "expected"),
    [
        ([], NOW, []),
        ([sample(rank) for rank in range(4)], NOW, []),
        ([of_loop(rank) for rank in range(4)], NOW, []),
        # Who takes longer than the others is slow, whatever it waits; but not alone.
        ([of_loop(0), of_loop(1, wait_s=0.05), of_loop(2, compute_s=0.12, wait_s=0.0), of_loop(3)],
         NOW, [(2, "slow")]),
        ([of_loop(0), of_loop(1), of_loop(2, data_s=0.2)], NOW, [(2, "slow")]),
        ([of_loop(0, compute_s=9.0)], NOW, []),
        # Whom the others wait for is stuck, once ten steps and ten seconds have passed.
        *[([*waiting(0, 1, 3), of_loop(2, phase=phase)], LATE, [(2, "stuck")])
          for phase in ("compute", "data", "save", "")],
        ([*waiting(0), of_loop(1)], LATE - 0.1, []),
        (SLOW_STEPS, 50.0 + 49, []),
        (SLOW_STEPS, 50.0 + 52, [(1, "stuck")]),
        # Nobody is named where all wait, or none does; and the newest step of any rank counts.
        (waiting(0, 1), LATE, []),
        ([of_loop(0), of_loop(1)], LATE, []),
        ([*waiting(0, at=60.0), of_loop(1)], LATE, []),
    ],
)  # fmt: skip
def test_who_is_slow_or_stuck(
    samples: list[Sample], now: float, expected: list[tuple[int, str]]
) -> None:
    assert found(*samples, now=now) == expected


def test_how_slow_a_rank_is() -> None:
    slow = of_loop(2, compute_s=0.12, wait_s=0.0)
    (note,) = notes.notes({0: [of_loop(0)], 1: [of_loop(1)], 2: [slow]}, NOW)
    assert note.words == "rank 2 needs 130 ms for a step, 1.4 times the median"


RISES = [300 + 20 * i for i in range(20)]
STAYS = [300] * 20


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([STAYS, RISES, STAYS], [(1, "grows")]),
        ([RISES, RISES, RISES], []),
        ([STAYS, [50, 200, 900, *[900] * 17], STAYS], []),  # at its start
        ([STAYS, [*[300] * 12, *[600] * 8], STAYS], []),  # once
        ([STAYS, [300 + i for i in range(20)], STAYS], []),  # a little
    ],
)
def test_who_grows_steadily_and_unlike_others_leaks(
    sizes: list[list[int]], expected: list[tuple[int, str]]
) -> None:
    history = {rank: over_time(rank, each) for rank, each in enumerate(sizes)}
    assert [(note.rank, note.kind) for note in notes.notes(history, NOW)] == expected


def test_memory_of_another_process_is_not_compared() -> None:
    before, now = over_time(1, RISES[:10], pid=7), over_time(1, RISES[10:13], pid=8)
    assert notes.notes({0: over_time(0, STAYS), 1: [*before, *now]}, NOW) == []


def test_memory_of_what_a_rank_has_started_counts() -> None:
    below = [sample(1, time=1000.0 + i, memory_below=i << 25) for i in range(20)]
    others = {rank: over_time(rank, STAYS) for rank in (0, 2)}
    kinds = [note.kind for note in notes.notes({1: below, **others}, NOW) if note.rank == 1]
    assert "grows" in kinds


def test_who_uses_far_less_cpu_time_is_uneven_where_no_steps_are_told() -> None:
    idle = [sample(1, time=1000.0 + i) for i in range(20)]
    history = {0: over_time(0, STAYS), 1: idle, 2: over_time(2, STAYS)}
    (note,) = notes.notes(history, NOW)
    assert note == (1, "uneven", "rank 1 uses 0.00 cores, and the others 0.50")
    told = {r: [one._replace(progress=progress()) for one in seen] for r, seen in history.items()}
    told[1] = [one._replace(progress=progress(compute_s=0.5)) for one in told[1]]
    assert [note.kind for note in notes.notes(told, NOW)] == ["slow"]


def test_of_three_the_one_that_differs_is_uneven_and_not_the_others() -> None:
    for figures in ((0.0, 0.5, 0.5), (0.5, 0.1, 0.1)):
        of = ((cores, enumerate(over_time(rank, STAYS))) for rank, cores in enumerate(figures))
        used = [[one._replace(cpu_seconds=i * cores) for i, one in looks] for cores, looks in of]
        history = dict(enumerate(used))
        assert [note.rank for note in notes.notes(history, NOW)] == [0]


def test_few_looks_say_nothing_of_what_changes_with_time() -> None:
    assert notes.notes({0: over_time(0, STAYS[:5]), 1: over_time(1, RISES[:5])}, NOW) == []


def test_a_thread_outside_the_mask_is_told() -> None:
    (note,) = notes.notes({1: [sample(1, elsewhere="5-6")]}, NOW)
    assert note.words == "rank 1 ran on CPUs 5-6, bound to 1"


def test_a_device_that_is_slower_by_its_clock_is_told() -> None:
    ranks = [sample(rank, device=device(rank, clock=1980.0)) for rank in range(3)]
    assert found(*ranks) == []
    hot = sample(3, device=device(3, clock=900.0))
    assert found(*ranks, hot) == [(3, "device")]


def test_a_device_that_is_far_less_used_is_told() -> None:
    def used(rank: int, use: float | None) -> list[Sample]:
        return over_time(rank, STAYS, device=device(rank, use=use))

    others = {rank: used(rank, 95.0) for rank in range(3)}
    (note,) = notes.notes({**others, 3: used(3, 20.0)}, NOW)
    assert (note.rank, note.kind) == (3, "device")
    assert "20 % of the time, others' 95 %" in note.words
    assert notes.notes({**others, 3: used(3, 80.0)}, NOW) == []
    assert notes.notes({**others, 3: used(3, None)}, NOW) == []


def held(kind: str) -> Held:
    return Held(kind, "held")


@pytest.mark.parametrize("kind", sorted(MUTE))
def test_who_cannot_run_is_named_at_once_and_not_for_the_time_it_does_not_use(kind: str) -> None:
    history = {rank: over_time(rank, [100] * 9) for rank in range(3)}
    still = [one._replace(cpu_seconds=10.0, held=held(kind)) for one in history[1]]
    assert found(sample(0), sample(1, held=held(kind))) == [(1, "stopped")]
    (note,) = notes.notes({**history, 1: still}, NOW)
    assert (note.rank, note.kind) == (1, "stopped")
    assert notes.merged({"a": [culprits.Note(0, "hang", "")]}, {"a": [note]})["a"][0] == note


@pytest.mark.parametrize("kind", ["disk-sleep", "swapped"])
def test_what_passes_by_itself_is_named_when_it_stays(kind: str) -> None:
    looks = [sample(0, held=held(kind))] * notes.STILL
    assert [len(notes.notes({0: looks[:n]}, NOW)) for n in range(1, notes.STILL + 1)] == [0, 0, 1]
    assert notes.notes({0: [*looks[:-1], sample(0, held=held("other"))]}, NOW) == []


def test_two_figures_that_look_alike_are_no_finding() -> None:
    used = {}
    for rank, cores in enumerate((0.001, 0.003, 0.003, 0.06)):
        looks = enumerate(over_time(rank, STAYS))
        used[rank] = [one._replace(cpu_seconds=i * cores) for i, one in looks]
    assert [note.rank for note in notes.notes(used, NOW)] == [3]  # and not 0, with "0.00" of "0.00"
