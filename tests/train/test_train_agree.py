"""Ranks that disagree are told what they disagree on, and what a task draws is seeded before."""

from pathlib import Path

import pytest

from tests.support.matrix import mostly_full
from tests.support.ports import free_port
from tests.train import warm
from tests.train.ranks import ENTRY, complete, environment, finish, run

TASK = """
import os, random
import numpy as np
import torch

RANK = int(os.environ["RANK"])
AWRY = os.environ.get("AWRY", "")


class Line:
    def __init__(self):
        self.slope = random.random() + np.random.rand() + torch.rand(())

    def model(self):
        model = torch.nn.Linear(1, 1)
        if AWRY == "weights" and RANK:
            torch.nn.init.ones_(model.bias)
        if AWRY == "shape" and RANK:
            model = torch.nn.Linear(1, 2)
        if AWRY == "count" and RANK:
            model.more = torch.nn.Parameter(torch.ones(1))
        return model

    def dataset(self, split):
        count = 32 - (RANK if AWRY == "length" else 0)
        x = torch.rand(count, 1) + random.random() + np.random.rand()
        order = torch.randperm(count)
        train, held_out = order[:24], order[24:]
        assert not set(train.tolist()) & set(held_out.tolist())
        with open(f"order{RANK}", "a") as file:
            print(order.tolist(), x.sum().item(), float(self.slope), file=file)
        part = x[train if split == "train" else held_out]
        return list(zip(part, part * self.slope))

    def loss(self, model, batch):
        x, y = batch
        return (model(x) - y).square().sum(), len(x)


class Measured(Line):
    def measure(self, model, batch):
        loss, count = self.loss(model, batch)
        more = {"extra": 1} if AWRY == "keys" and RANK else {}
        if AWRY == "batch" and len(batch[0]) < 3:
            more = {"extra": 1}
        return {"loss": loss, "count": count, **({} if AWRY == "uncounted" else more), **(
            {"wrong": torch.ones(2 + RANK)} if AWRY == "sums" else {})}

    def report(self, sums):
        return {"step": 1.0} if AWRY == "report" else {}
"""
FLAGS = (
    *("--device", "cpu", "--steps", "2", "--batch-size", "2", "--eval-batch-size", "3"),
    *("--log-every", "1", "--out", "here"),
)


@pytest.mark.parametrize(("world", "loaders"), mostly_full([(2, "0"), (3, "2")]))
@pytest.mark.parametrize(
    ("task", "awry", "status", "said"),
    mostly_full(
        [
            (
                "Line",
                "length",
                2,
                "the ranks disagree on the length of the data set 'validation': rank 0 has 8, "
                "rank 1 has 7; dataset() has to return all samples on every rank",
            ),
            ("Line", "weights", 2, "the ranks disagree on the initial values of bias: rank 0 has "),
            (
                "Line",
                "shape",
                2,
                "the ranks disagree on the parameter weight: rank 0 has (1, 1), torch.float32, "
                "rank 1 has (2, 1), torch.float32; model() has to build the same model on "
                "every rank",
            ),
            ("Line", "count", 2, "the ranks disagree on the parameter more: rank 0 has none, rank"),
            ("Measured", "keys", 1, "the ranks disagree on what measure() returns: rank 0 has {"),
            ("Measured", "sums", 1, "the ranks disagree on what measure() returns: rank 0 has {"),
            ("Measured", "batch", 1, "measure() of the task measured has no 'extra' for every"),
            ("Measured", "report", 2, "report() of the task returns 'step', which the log has"),
        ]
    ),
)
def test_what_ranks_disagree_on_is_told_in_one_line(
    cwd: Path, task: str, awry: str, status: int, said: str, world: int, loaders: str
) -> None:
    if awry == "batch" and world == 3:  # each of them has one batch
        said = "the ranks disagree on what measure() returns: rank 0 has {"
    flags = ("--task", f"task.py:{task}", "--loader-workers", loaders)
    ranks = run(world, *FLAGS, *flags, cwd=cwd, AWRY=awry)
    assert [rank.status for rank in ranks] == [status] * world, ranks
    assert ranks[0].err.startswith(f"train: error: {said}"), ranks[0].err
    assert [rank.err.count("\n") for rank in ranks] == [1] + [0] * (world - 1)


@pytest.mark.full
def test_ranks_with_different_flags_are_refused(cwd: Path) -> None:
    port, ranks = free_port(), []
    for rank, lr in enumerate(("0.1", "0.1", "0.2")):
        words = (*FLAGS, "--task", "task.py:Line", "--lr", lr, "--loader-workers", str(rank))
        ranks.append(warm.start(str(ENTRY), words, str(cwd), environment(rank, 3, port)))
    ended = finish(list(ranks))
    assert [one.status for one in ended] == [2, 2, 2], ended
    assert ended[0].err == (
        "train: error: the ranks disagree on --lr: rank 0 has 0.1, rank 2 has 0.2; start all of "
        "them with the same command line\n"
    )
    assert ended[1].err == ended[2].err == ""
    assert not (cwd / "here").exists()


@pytest.mark.full
def test_what_a_task_makes_is_seeded_for_all_ranks_and_splits(cwd: Path) -> None:
    complete(3, *FLAGS, "--task", "task.py:Line", cwd=cwd)
    made = {line for rank in range(3) for line in (cwd / f"order{rank}").read_text().splitlines()}
    assert len(made) == 1
    complete(1, *FLAGS, "--task", "task.py:Line", "--seed", "1", "--overwrite", cwd=cwd)
    assert len(made | set((cwd / "order0").read_text().splitlines())) == 2
