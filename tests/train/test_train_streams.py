"""Whatever a task says of its data, a step has the same samples on any number of ranks."""

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support.late import Late
from tests.support.matrix import mostly_full
from tests.train.ranks import assert_refused, complete, run, weights
from tests.train.streams import KINDS, STEPS, TASKS, flags_of, rough, taken, undisturbed

torch = Late("torch")


@pytest.mark.parametrize("kind", mostly_full(KINDS))
def test_steps_and_weights_are_those_of_one_rank_after_kills_and_resizes(
    tmp_path: Path, kind: str
) -> None:
    alone = undisturbed(tmp_path, kind)
    assert len(alone) == STEPS
    launches = rough(
        tmp_path, kind, random.Random(kind), most=3, kills=1 if kind == "Lengths" else 2
    )
    whole = set()
    for launch in launches:
        for rate, samples in launch.items():
            assert samples <= alone[rate]  # a rank that was killed has not noted all
            whole.update([rate] if samples == alone[rate] else [])
    assert whole == set(alone)
    ours, others = (weights(tmp_path / out, STEPS) for out in ("rough", "alone"))
    for name, weight in ours.items():
        assert weight.dtype == torch.float64
        torch.testing.assert_close(weight, others[name], rtol=1e-12, atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["Map", "Turns"])
def test_an_epoch_has_every_sample_once_though_the_steps_change_their_size(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "streams.py").write_text(TASKS)
    flags = [word for word in flags_of(kind) if word not in ("--steps", str(STEPS))]
    common = (*flags, "--out", "resized", "--resume", "auto", "--steps")
    complete(2, *common, "5", "--global-batch", "40", cwd=tmp_path, LAUNCH="first")
    more = ("60", "--global-batch", "23")
    (ended,) = complete(1, *common, *more, cwd=tmp_path, LAUNCH="second")
    assert ("reads the earlier ones again\n" in ended.out) == (kind == "Turns")
    found = [taken(tmp_path, launch) for launch in ("first", "second")]
    every = [samples for launch in found for _, samples in sorted(launch.items(), reverse=True)]
    seen = Counter[int]()
    for samples in every:
        seen += samples
        assert max(seen.values()) - (min(seen.values()) if len(seen) == 403 else 0) <= 1
    assert len(seen) == 403


@pytest.mark.full
@pytest.mark.parametrize("kind", ["Turns", "Arrays", "Chained"])
def test_each_rank_may_have_one_sample(tmp_path: Path, kind: str) -> None:
    (tmp_path / "streams.py").write_text(TASKS)
    complete(3, *flags_of(kind), "--global-batch", "3", "--out", "here", cwd=tmp_path)


@pytest.mark.full
def test_steps_by_length_keep_the_tokens_that_they_began_with(tmp_path: Path) -> None:
    (tmp_path / "streams.py").write_text(TASKS)
    flags = (*flags_of("Lengths"), "--out", "here", "--resume", "auto", "--steps", "3")
    complete(1, *flags, cwd=tmp_path)
    ended = run(1, *flags, "--global-tokens", "900", cwd=tmp_path)
    assert_refused(ended, "here/step-00000003 is of another run: its order is 'shuffled, by leng")
    assert "700 tokens a step' and yours is " in ended[0].err


@pytest.mark.full
def test_shards_are_divided_where_they_are_a_multiple_of_the_ranks(tmp_path: Path) -> None:
    """In a pass each sample is taken once, by one rank; a resumed run has as many ranks."""
    (tmp_path / "streams.py").write_text(TASKS)
    flags = (*flags_of("Shards"), "--out", "here", "--resume", "auto", "--eval-every", "0")
    (first, _) = complete(2, *flags, "--steps", "4", cwd=tmp_path, LAUNCH="first")
    assert "each rank reads 2 of 4 shards; a resumed run has 2 ranks too, and goes on" in first.out
    seconds = ("--steps", "8", "--loader-workers", "1")
    complete(2, *flags, *seconds, cwd=tmp_path, LAUNCH="second")
    seen = Counter[int]()
    for launch in ("first", "second"):
        for samples in taken(tmp_path, launch).values():
            seen += samples
    assert seen == Counter(range(8 * 48))
    for world, parts in ((1, ""), (4, ", 4 shards in 4 parts")):
        ended = run(world, *flags, "--steps", "9", cwd=tmp_path)
        assert_refused(ended, "here/step-00000008 is of another run: its order is 'as they come, ")
        assert f"4 shards in 2 parts' and yours is 'as they come{parts}'; use" in ended[0].err
    three, *_ = complete(3, *flags, "--steps", "4", "--out", "three", cwd=tmp_path, LAUNCH="three")
    assert "reads all of them (4 shards; a multiple of 3 would be divided)" in three.out


@pytest.mark.full
def test_a_stream_that_trains_is_evaluated_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "streams.py").write_text(TASKS)
    for kind in ("Turns", "States"):
        flags = (*flags_of(kind), "--eval-splits", "train", "--out", kind)
        complete(1, *flags, cwd=tmp_path)
    read = [(tmp_path / kind / "evaluation.json").read_text() for kind in ("Turns", "States")]
    assert read[0] == read[1]


@pytest.mark.full
def test_a_validation_that_may_have_no_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "streams.py").write_text(TASKS)
    flags = (*flags_of("Many"), "--eval-batch-size", "1", "--eval-every", "0", "--steps", "1")
    (ended,) = complete(1, *flags, "--out", "here", cwd=tmp_path)
    assert "\nthe data set 'validation' gave 1,000 batches to each rank and goes on; " in ended.out


@pytest.mark.full
def test_a_state_spares_a_resumed_run_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "streams.py").write_text(TASKS)
    flags = [*flags_of("States"), "--out", "here", "--resume", "auto"]
    complete(1, *flags, "--max-time", "1000h", cwd=tmp_path)
    states = tmp_path / "states-0"
    states.unlink(missing_ok=True)
    first, _ = complete(2, *flags, "--steps", "30", cwd=tmp_path)
    assert str(STEPS * 48 % 403) in states.read_text().split()
    assert "on from their state_dict\n" in first.out


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("ByRank", 2, "the ranks disagree on the first sample of 'train': rank 0 has "),
        ("Void", 1, "the data set 'validation' gave no sample; look at what dataset() reads"),
        ("Spent", 1, "the data set 'train' gave 20 samples and no more when it was iterated"),
    ],
)
def test_what_cannot_be_read_in_turn_is_told_in_one_line(
    tmp_path: Path, kind: str, status: int, said: str
) -> None:
    (tmp_path / "streams.py").write_text(TASKS)
    ended = run(2, *flags_of(kind), "--out", "here", cwd=tmp_path)
    assert_refused(ended, said, status)
