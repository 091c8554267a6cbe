"""What one rank refuses all refuse, also what ranks disagree on; rank 0 says it in one line."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.ports import free_port
from tests.train import warm
from tests.train.ranks import (
    ENTRY,
    assert_refused,
    complete,
    environment,
    finish,
    run,
    text_of,
)

TASK = text_of("own")
FLAGS = (
    *("--device", "cpu", "--steps", "6", "--batch-size", "2", "--log-every", "1"),
    *("--eval-every", "0", "--save-every", "0", "--eval-batch-size", "3", "--out", "here"),
)


class Row(NamedTuple):
    """Why a run is refused, what its task has in place of Line's, the status, and flags."""

    said: str
    body: str = "pass"
    status: int = 2
    flags: tuple[str, ...] = ()


DISAGREE = "the ranks disagree on"
MEASURE = """
    def measure(self, model, batch):
        loss, count = self.loss(model, batch)
        return {"loss": loss, "count": count, **self.more(len(count * [0]))}

    reported = {}

    def report(self, sums):
        return self.reported
"""
UNUSED = """
    def model(self):
        model = torch.nn.Linear(1, 1)
        model.two = torch.nn.Linear(1, 1)
        return model

    def loss(self, model, batch):
        loss, count = super().loss(model, batch)
        self.passes = getattr(self, "passes", 0) + model.training
        return loss + (model.two(batch[0]).sum() if self.passes <= self.last else 0), count
"""
FILLED = """
    passes = 0  # the disk is full from the third step on

    def loss(self, model, batch):
        self.passes += model.training
        if self.passes == 4 and RANK == 0:
            lines = pathlib.Path("here/metrics.jsonl")
            lines.unlink()
            lines.symlink_to("/dev/full")
        return super().loss(model, batch)
"""
WEIGHTS = """
    def model(self):
        model = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(model.bias, RANK)
        return model
"""
REFUSED = """
    def dataset(self, split):
        if OWN:
            raise RefusedError("--data: there is no such file here", shared=True)
        return super().dataset(split)
"""
SHAPES = "model = lambda self: torch.nn.Linear(1, 1 + RANK)"
ROWS = [
    Row(
        f"{DISAGREE} the parameter weight: rank 0 has (1, 1), torch.float32, rank 1 has "
        "(2, 1), torch.float32; model() has to build the same model on every rank",
        SHAPES,
    ),
    *(
        pytest.param(row, marks=pytest.mark.full)
        for row in (
            Row(
                f"{DISAGREE} the length of the data set 'train': rank 0 has 24, rank 1 has 23; "
                "dataset() has to return all samples on every rank",
                "dataset = lambda self, split: Line.dataset(self, split)[OWN:]",
            ),
            Row(f"{DISAGREE} the initial values of bias: rank 0 has ", WEIGHTS),
            Row("rank 1: --data: there is no such file here", REFUSED),
            Row(f"{DISAGREE} describe(): ", "describe = lambda self: f'points of rank {RANK}'"),
            Row(
                f"{DISAGREE} group 0 of the optimizer: rank 0 has {{'lr': 0.004, ",
                "optimizer = lambda self, m, lr: torch.optim.SGD(m.parameters(), lr / (1 + RANK))",
            ),
            Row(
                f"{DISAGREE} what measure() returns: {{",
                MEASURE + "    more = lambda self, count: {'extra': 1} if OWN else {}",
                1,
            ),
            Row(
                "report() of the task returns 'step', which the log has",
                MEASURE + "    more, reported = lambda self, count: {}, {'step': 1.0}",
                1,
            ),
            Row(
                "loss() of the task returns an object of the class Tensor; return the sum",
                "loss = lambda self, model, batch: Line.loss(self, model, batch)[0]",
            ),
            Row(
                "cannot write to here/metrics.jsonl: No space left on device; make room, and use "
                "--resume auto",
                FILLED,
                1,
            ),
            Row(
                "--patience counts validations, and there is none but the last; use --eval-every ",
                flags=("--patience", "2"),
            ),
        )
    ),
]


def own(cwd: Path, body: str) -> tuple[str, str]:
    """Write a task with this body; the flag that names it."""
    with open(cwd / "task.py", "a") as file:
        file.write(f"\n\nclass Own(Line):\n    {body}\n")
    return "--task", "task.py:Own"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.said)
def test_all_ranks_end_together_and_rank_0_says_why(cwd: Path, row: Row) -> None:
    ended = run(2, *FLAGS, *own(cwd, row.body), *row.flags, cwd=cwd)
    assert_refused(ended, row.said, row.status)


@pytest.mark.full
@pytest.mark.parametrize(
    "body",
    [
        "dataset = lambda self, split: open('nowhere')",
        "model = lambda self: open('nowhere') if OWN else Line.model(self)",
    ],
)
def test_an_error_of_a_task_is_one_traceback(cwd: Path, body: str) -> None:
    """Of the first rank that has one; the others leave without a word, under a launcher too."""
    ended = run(2, *FLAGS, *own(cwd, body), cwd=cwd)
    assert [one.status for one in ended] == [1, 1]
    said, none = sorted((one.err for one in ended), reverse=True)
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("No such file or directory: 'nowhere'\n")
    assert none == ""


@pytest.mark.full
@pytest.mark.parametrize("last", [0, 2])
def test_a_parameter_that_a_step_leaves_out_is_named(cwd: Path, last: int) -> None:
    ranks = run(2, *FLAGS, *own(cwd, f"{UNUSED}\n    last = {last}"), cwd=cwd)
    said = (
        "this step gave no gradient to two.weight, two.bias; freeze what loss() does not use, with"
    )
    assert_refused(ranks, said)
    assert not list((cwd / "here").glob("step-*"))


@pytest.mark.full
def test_ranks_with_different_flags_are_refused(cwd: Path) -> None:
    port, ranks = free_port(), []
    for rank, lr in enumerate(("0.1", "0.1", "0.2")):
        words = (*FLAGS, "--task", "task.py:Line", "--lr", lr, "--loader-workers", str(rank))
        ranks.append(warm.start(str(ENTRY), words, str(cwd), environment(rank, 3, port)))
    assert_refused(
        finish(list(ranks)),
        "the ranks disagree on --lr: rank 0 has 0.1, rank 2 has 0.2; start all of them with the "
        "same command line\n",
    )
    assert not (cwd / "here").exists()


@pytest.mark.full
def test_what_a_task_makes_is_seeded_for_all_ranks_and_splits(cwd: Path) -> None:
    complete(3, *FLAGS, "--task", "task.py:Line", cwd=cwd)
    made = {line for rank in range(3) for line in (cwd / f"order{rank}").read_text().splitlines()}
    assert len(made) == 1
    complete(1, *FLAGS, "--task", "task.py:Line", "--seed", "1", "--overwrite", cwd=cwd)
    assert len(made | set((cwd / "order0").read_text().splitlines())) == 2
