"""A task of one's own: three methods, found by name, path or module, and read by any processes."""

import json
from pathlib import Path

import pytest
import torch

from spawnlaunch.train.data import number_on
from spawnlaunch.train.errors import RefusedError
from spawnlaunch.train.tasks import rows
from tests.train.ranks import complete, history, metrics, run

MINIMAL = """
import torch
import helper

class Line:
    def __init__(self, slope: float = 2.0, points: int = 96, name: str | None = None):
        self.slope, self.points = slope, points

    def model(self):
        return torch.nn.Linear(1, 1)

    def dataset(self, split):
        return Points(self.points if split == "train" else 7, self.slope)

    def loss(self, model, batch):
        x, y = batch
        return (model(x) - y).square().sum(), len(x)


class Points:
    def __init__(self, count, slope):
        self.count, self.slope = count, slope

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        x = torch.tensor([index / self.count])
        return x, helper.line(x, self.slope)
"""
COUNTS = """
import os, pathlib, torch

RANK = int(os.environ["RANK"])


class Counting(torch.nn.Linear):
    # Each rank adds its own number in every training step, so that the ranks come apart.
    def forward(self, x):
        if self.training:
            self.seen += RANK + 1
            pathlib.Path(f"rank{RANK}").write_text(str(int(self.seen)))
        return super().forward(x)


class Counts:
    def __init__(self, kept: str):
        self.kept = kept == "True"

    def model(self):
        model = Counting(1, 1)
        model.register_buffer("seen", torch.zeros(()), persistent=self.kept)
        return model

    def dataset(self, split):
        return torch.ones(16, 1)

    def loss(self, model, batch):
        return model(batch).sum(), torch.tensor(len(batch))
"""
HERE = ("--device", "cpu", "--log-every", "1", "--lr", "0.1", "--out", "here")
FLAGS = (*HERE, "--steps", "20")


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """A directory with a task in the file train.py, which is our package's name too."""
    (tmp_path / "train.py").write_text(MINIMAL)
    (tmp_path / "mine.py").write_text(MINIMAL)
    (tmp_path / "helper.py").write_text("def line(x, slope):\n    return slope * x\n")
    return tmp_path


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".CSV"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_row_holds_any_text(tmp_path: Path, suffix: str, encoding: str) -> None:
    file, text = tmp_path / f"rows{suffix}", "one\u2028two\x85three" + 200_000 * "."
    row = json.dumps({"text": text}, ensure_ascii=False) if suffix == ".jsonl" else text
    file.write_text("text\n" * (suffix != ".jsonl") + 20 * f"{row}\n", encoding=encoding)
    splits = rows.read_splits(str(file), None, None)
    assert [row["text"] for row in splits["train"]] == 18 * [text]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "text\none, two"), ("a.json", '[{"text": 1}]'), ("a.jsonl", '{"text": null}')],
)
def test_no_row_is_taken_for_what_it_does_not_say(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    file = str(tmp_path / name)
    with pytest.raises(RefusedError, match="no column"):
        rows.fill("--text", "text", rows.read_splits(file, file, None)["train"][0])


@pytest.mark.full
def test_three_methods_and_a_constructor_make_a_task(cwd: Path) -> None:
    first, _ = complete(2, *FLAGS, "--task", "train.py:Line", "--slope", "3", cwd=cwd)
    assert "96 samples to train on, 7" in first.out
    losses = metrics(cwd / "here", "loss")
    assert losses[-1] < 0.8 * losses[0]
    config = (cwd / "here" / "config.toml").read_text()
    assert "slope = 3.0\npoints = 96\n" in config
    assert 'task = "train.py:Line"\n' in config


@pytest.mark.full
def test_epochs_decide_the_steps_of_a_task_in_a_module(cwd: Path) -> None:
    flags = ("--task", "mine:Line", "--epochs", "3", "--batch-size", "10", "--points", "95")
    complete(0, *HERE, *flags, cwd=cwd)
    assert len(metrics(cwd / "here", "loss")) == 29


@pytest.mark.full
@pytest.mark.parametrize(
    "task", ["train.py:Line", pytest.param("mine:Line", marks=pytest.mark.nightly)]
)
def test_any_number_of_loader_processes_reads_the_same_samples(cwd: Path, task: str) -> None:
    flags = (*FLAGS, "--task", task, "--accumulate", "2", "--eval-every", "7")
    complete(0, *flags, "--loader-workers", "0", cwd=cwd)
    complete(0, *flags, "--out", "there", "--loader-workers", "2", cwd=cwd)
    assert history(cwd / "there") == history(cwd / "here")


@pytest.mark.full
@pytest.mark.parametrize(("kept", "last"), [(True, [6, 7]), (False, [6, 12])])
def test_buffers_are_those_of_rank_0_if_a_checkpoint_holds_them(
    tmp_path: Path, kept: bool, last: list[int]
) -> None:
    (tmp_path / "counts.py").write_text(COUNTS)
    complete(
        2, *FLAGS, "--task", "counts.py:Counts", "--steps", "6", f"--kept={kept}", cwd=tmp_path
    )
    assert [int((tmp_path / f"rank{rank}").read_text()) for rank in (0, 1)] == last


@pytest.mark.full
def test_an_option_that_the_loop_has_too_is_refused(cwd: Path) -> None:
    (cwd / "clash.py").write_text(
        "from spawnlaunch.train.tasks.language import Language\n"
        "class Clash(Language):\n    def __init__(self, lr: float = 1): ...\n"
    )
    (ended,) = run(0, "--task", "clash.py:Clash", cwd=cwd)
    assert ended.status == 2
    assert ended.err == ("train: error: Clash has an option lr, and so has the loop; rename it\n")


@pytest.mark.parametrize("value", [3, 3.0, torch.tensor(3), torch.ones(2, 2)])
def test_what_a_task_counts_is_brought_to_the_device(value: torch.Tensor | float):
    elsewhere = torch.device("meta")  # which no tensor of the CPU can be added to
    assert number_on(value, elsewhere).device == elsewhere
    assert number_on(value, torch.device("cpu")).sum() == (
        4 if isinstance(value, torch.Tensor) and value.dim() else 3
    )
