"""What makes steps fast changes no result, and what is measured is measured on every rank."""

import gc
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spawnlaunch.train.config import seconds
from tests.support.late import Late
from tests.train.ranks import SMALL, complete, metrics

torch = Late("torch")
log = Late("spawnlaunch.train.log")
feed = Late("spawnlaunch.train.feed")
distributed = Late("spawnlaunch.train.distributed")

FLAGS = (*SMALL, "--context", "32", "--steps", "12", "--log-every", "4", "--warmup", "5")


EXTRAS = ("--tensorboard", "--wandb", "project", "--profile")


class Run(NamedTuple):
    """A directory, and what rank 0 printed."""

    out: Path
    said: str


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with every extra, but nothing that makes its steps faster."""
    cwd = tmp_path_factory.mktemp("plain")
    first, _ = complete(2, *FLAGS, *EXTRAS, "--out", "plain", cwd=cwd, WANDB_MODE="offline")
    return Run(cwd / "plain", first.out)


@pytest.mark.full
@pytest.mark.parametrize(
    ("flags", "tolerance"),
    [
        (("--bucket-mb", "1", "--tf32"), 1e-6),
        (("--precision", "bf16", "--gradient-dtype", "bf16", "--bucket-mb", "1"), 2e-2),
        (("--precision", "fp16"), 2e-2),
    ],
)
def test_a_faster_way_ends_at_the_same_loss(
    plain: Run, tmp_path: Path, flags: tuple[str, ...], tolerance: float
) -> None:
    complete(
        2, *FLAGS, *flags, "--accumulate", "2", "--batch-size", "4", "--out", "fast", cwd=tmp_path
    )
    assert metrics(tmp_path / "fast", "loss") == pytest.approx(
        metrics(plain.out, "loss"), rel=tolerance
    )


@pytest.mark.full
def test_a_line_of_metrics_says_where_the_time_went(plain: Run) -> None:
    *lines, last = map(json.loads, (plain.out / "metrics.jsonl").read_text().splitlines())
    assert "validation_loss" in last
    for line in lines:
        for part in ("data_s", "compute_s", "wait_s"):
            low, middle, high = line[part]
            assert 0 <= low <= middle <= high
        assert line["slowest"].startswith(("rank 0 on ", "rank 1 on "))
        assert line["bytes_per_second"] == pytest.approx(32 * line["samples_per_second"], rel=0.05)


@pytest.mark.full
def test_extras_write_what_they_promise(plain: Run) -> None:
    (events,) = (plain.out / "tensorboard").glob("events.*")
    assert b"gradient_norm" in events.read_bytes()
    assert "  norm " in plain.said
    for rank in (0, 1):
        trace = json.loads((plain.out / f"trace-rank{rank}.json").read_text())
        names = [event.get("name", "") for event in trace["traceEvents"]]
        assert any("gloo" in name for name in names)
        (run,) = (plain.out / "wandb" / f"rank-{rank}" / "wandb").glob("offline-run-*")
        assert (run / f"run-plain-{rank}.wandb").stat().st_size > 0
    assert re.search(r"  0:00:\d\d left\n", plain.said)
    assert "peak memory " in plain.said


@pytest.mark.full
@pytest.mark.parametrize(
    ("wanted", "device", "ranks", "cpus", "online", "workers"),
    [
        (None, "cpu", 1, 8, 64, 0),
        (None, "cuda", 1, 7, 64, 6),
        (None, "cuda", 1, 1, 64, 1),
        (None, "cuda", 1, 32, 64, 8),
        (None, "cuda", 8, 32, 32, 3),  # nobody bound the ranks
        (5, "cpu", 1, 1, 64, 5),
    ],
)
def test_loader_processes_follow_the_cpus_of_the_rank(
    wanted: int | None, device: str, ranks: int, cpus: int, online: int, workers: int
) -> None:
    world = distributed.World(0, ranks, 0, ranks)
    assert feed.loader_workers(wanted, device, world, cpus, online) == workers


@pytest.mark.full
def test_more_loader_processes_than_cpus_are_asked_for_without_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    reader: Any = [0, 1]
    feed.Feed(reader, [], 1000, torch.device("cpu"))
    assert not recwarn.list


@pytest.mark.full
def test_parts_of_a_step_are_compared_and_the_slowest_is_named() -> None:
    one, other = log.Split(0.001, 0.010, 0.004), log.Split(0.002, 0.012, 0.001)
    assert log.spread([one, other])["compute_s"] == [0.010, 0.011, 0.012]
    assert log.slowest([one, other]) == 1


@pytest.mark.full
def test_lines_of_metrics_are_not_kept_in_memory() -> None:
    from spawnlaunch.train.schedule import Position
    from spawnlaunch.train.screen import Screen
    from spawnlaunch.train.task import Task

    clock = log.Clock(torch.device("cpu"))
    ours = log.Log(Screen(None), log.Metrics(None), 9000, Task(), clock)
    sums, one = torch.ones(4, dtype=torch.float64), torch.ones(1)
    at, found = Position(1, 8, taken=8), log.Step(sums, one)
    objects = []
    for lines in (200, 400):
        for _ in range(lines):
            ours.add(at, found, 0.01)
            clock.steps = [(0.0, 0.0, 0.0, 1.0)]
            ours.write_means(at, found, 1e-3)
        objects.append(len(gc.get_objects()))
    assert objects[1] < objects[0] + 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("45m", 2700),
        ("1.5h", 5400),
        ("2d", 172800),
        ("01:02:03", 3723),
        ("1-00:00:01", 86401),
    ],
)
def test_times_are_read_as_slurm_writes_them(text: str, expected: float) -> None:
    assert seconds(text) == expected
