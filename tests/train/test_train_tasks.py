"""A task of one's own: three methods, found by name, path or module, and read by any processes."""

from pathlib import Path

import pytest
from ranks import complete, history, metrics, run

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
        return (model(x) - y).square().sum(), torch.tensor(len(x))


class Points:
    def __init__(self, count, slope):
        self.count, self.slope = count, slope

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        x = torch.tensor([index / self.count])
        return x, helper.line(x, self.slope)
"""
FLAGS = ("--device", "cpu", "--steps", "20", "--log-every", "1", "--lr", "0.1", "--out", "here")


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """A directory with a task in the file train.py, which is our package's name too."""
    (tmp_path / "train.py").write_text(MINIMAL)
    (tmp_path / "mine.py").write_text(MINIMAL)
    (tmp_path / "helper.py").write_text("def line(x, slope):\n    return slope * x\n")
    return tmp_path


@pytest.mark.parametrize("task", ["train.py:Line", "mine:Line"])
def test_three_methods_and_a_constructor_make_a_task(cwd: Path, task: str) -> None:
    first, _ = complete(2, *FLAGS, "--task", task, "--slope", "3", cwd=cwd)
    assert "line: 96 samples to train on, 7 held out\n" in first.out
    losses = metrics(cwd / "here", "loss")
    assert losses[-1] < 0.8 * losses[0]
    config = (cwd / "here" / "config.toml").read_text()
    assert "slope = 3.0\npoints = 96\n" in config
    assert f'task = "{task}"\n' in config


def test_epochs_decide_the_steps(cwd: Path) -> None:
    flags = ("--task", "mine:Line", "--epochs", "3", "--batch-size", "10", "--points", "95")
    complete(0, *FLAGS, *flags, cwd=cwd)
    assert len(metrics(cwd / "here", "loss")) == 29


@pytest.mark.parametrize(
    "task", ["train.py:Line", pytest.param("mine:Line", marks=pytest.mark.stress)]
)
def test_any_number_of_loader_processes_reads_the_same_samples(cwd: Path, task: str) -> None:
    flags = (*FLAGS, "--task", task, "--accumulate", "2", "--eval-every", "7")
    complete(2, *flags, "--loader-workers", "0", cwd=cwd)
    complete(2, *flags, "--out", "there", "--loader-workers", "2", cwd=cwd)
    assert history(cwd / "there") == history(cwd / "here")


def test_an_option_that_the_loop_has_too_is_refused(cwd: Path) -> None:
    (cwd / "clash.py").write_text("class Clash:\n    def __init__(self, lr: float = 1): ...\n")
    (ended,) = run(0, "--task", "clash.py:Clash", cwd=cwd)
    assert ended.status == 2
    assert ended.err == ("train: error: Clash has an option lr, and so has the loop; rename it\n")


def test_a_file_of_text_can_be_trained_on(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("all work and no play " * 400)
    small = ("--layers", "1", "--width", "32", "--context", "32", "--device", "cpu")
    (ended,) = complete(0, *small, "--text", "text.txt", "--steps", "5", cwd=tmp_path)
    assert "language: text.txt, sha256 " in ended.out
    (ended,) = run(0, "--text", "missing.txt", "--device", "cpu", cwd=tmp_path)
    assert ended.status == 2
    assert "No such file or directory: 'missing.txt'" in ended.err
