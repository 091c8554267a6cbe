"""What one rank refuses all refuse; what a task has wrong is one line before the first step."""

import os
import random
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch

from spawnlaunch.train.arranged import order_of
from spawnlaunch.train.commandline import parse
from spawnlaunch.train.config import Config, to_toml
from spawnlaunch.train.data import Feed, Reader
from spawnlaunch.train.distributed import World
from spawnlaunch.train.errors import RefusedError, needed
from spawnlaunch.train.learner import sum_and_count
from spawnlaunch.train.log import Metrics
from spawnlaunch.train.model import made_by, own_optimizer, start_from
from spawnlaunch.train.order import NO_END, Batch
from spawnlaunch.train.saving import begin, claim
from spawnlaunch.train.schedule import Position, schedule
from spawnlaunch.train.task import Task
from tests.train.ranks import ENTRY, complete, environment, run

TASK = """
import os, pathlib, torch
from spawnlaunch.train.errors import RefusedError

RANK = int(os.environ.get("RANK", 0))


class Line:
    def model(self):
        return torch.nn.Linear(2, 1)

    def dataset(self, split):
        return list(torch.arange(40.0).view(20, 2) / 20)

    def loss(self, model, batch):
        return (model(batch) - batch.sum(1, keepdim=True)).square().sum(), len(batch)


class EmptyOnOne(Line):
    def dataset(self, split):
        return [] if RANK == 1 else super().dataset(split)


class RefusedByOne(Line):
    def dataset(self, split):
        if RANK == 1:
            raise RefusedError("--data: there is no such file here", shared=True)
        return super().dataset(split)


class MadeByOne(Line):
    def __init__(self):
        if RANK == 1:
            open("nowhere")


class Described(Line):
    def describe(self):
        return f"points of rank {RANK}"


class Rates(Line):
    def optimizer(self, model, lr):
        return torch.optim.SGD(model.parameters(), lr=lr / (1 + RANK))


class Kinds(Line):
    def optimizer(self, model, lr):
        kind = torch.optim.SGD if RANK else torch.optim.Adagrad
        return kind(model.parameters(), lr=lr)


class Bare(Line):
    def loss(self, model, batch):
        return super().loss(model, batch)[0]


class Sparse(Line):
    def model(self):
        return torch.nn.Embedding(4, 1, sparse=True)

    def loss(self, model, batch):
        return model(batch.long()).square().sum(), len(batch)


class Filled(Line):
    # The disk is full from the third step on.
    passes = 0

    def loss(self, model, batch):
        self.passes += model.training
        if self.passes == 4 and RANK == 0:
            lines = pathlib.Path("here/metrics.jsonl")
            lines.unlink()
            lines.symlink_to("/dev/full")
        return super().loss(model, batch)
"""
FLAGS = (
    *("--device", "cpu", "--steps", "6", "--batch-size", "2", "--log-every", "1"),
    *("--eval-every", "0", "--save-every", "0", "--out", "here"),
)


@pytest.mark.full
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("EmptyOnOne", "the ranks disagree on the length of the data set 'train': rank 0 has 20, "),
        ("RefusedByOne", "rank 1: --data: there is no such file here"),
        ("MadeByOne", "rank 1: MadeByOne: [Errno 2] No such"),
        ("Described", "the ranks disagree on describe(): "),
        ("Rates", "the ranks disagree on group 0 of the optimizer: rank 0 has {'lr': 0.004, "),
        ("Kinds", "the ranks disagree on the optimizer: "),
        ("Bare", "loss() of the task returns an object"),
        ("Sparse", "the gradient of weight is sparse, "),
    ],
)
def test_all_ranks_refuse_together_and_rank_0_says_why(
    cwd: Path, task: str, said: str, world: int
) -> None:
    ranks = run(world, *FLAGS, "--task", f"task.py:{task}", cwd=cwd)
    assert [rank.status for rank in ranks] == [2] * world
    assert ranks[0].err.startswith(f"train: error: {said}")
    assert [rank.err.count("\n") for rank in ranks] == [1] + [0] * (world - 1)


@pytest.mark.full
@pytest.mark.parametrize("world", [1, 2])
def test_metrics_that_cannot_be_written_end_the_run_with_one_line(cwd: Path, world: int) -> None:
    ranks = run(world, *FLAGS, "--task", "task.py:Filled", cwd=cwd)
    assert [rank.status for rank in ranks] == [1] * world
    assert ranks[0].err == (
        "train: error: cannot write to here/metrics.jsonl: No space left on device; make room, and "
        "type --resume auto\n"
    )
    assert all(rank.err == "" for rank in ranks[1:])


def test_what_cannot_be_written_at_the_beginning_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"cannot write to .*: No such file or directory; make"):
        begin(Config(), tmp_path / "none", Position())
    metrics = Metrics(Path("/dev/full"))
    metrics.write({"step": 1})
    assert "No space left on device" in str(metrics.problem)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("defaults = {'stpes': 3}", "Odd.defaults: unrecognized arguments: --stpes=3"),
        ("defaults = {'lr': -1.0}", "Odd.defaults: argument --lr: '-1.0' cannot be"),
        ("defaults = {'batch_size': 0}", "Odd.defaults: argument --batch-size: '0' cannot be"),
        ("defaults = {'betas': (0.9, 0.9)}", "Odd.defaults: betas is not a number, a text, true"),
        ("__init__ = lambda self, config='': None", "Odd has an option config, and so has"),
        ("__init__ = lambda self, help='': None", "Odd has an option help, and so has the"),
        ("__init__ = lambda self, no_compile=False: None", "Odd has an option no_compile, and --"),
    ],
)
def test_what_a_class_says_of_flags_is_checked_as_flags_are(
    cwd: Path, body: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (cwd / "odd.py").write_text(f"{TASK}\n\nclass Odd(Line):\n    {body}\n")
    with pytest.raises(SystemExit) as left:
        parse(["--task", f"{cwd / 'odd.py'}:Odd"])
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith(f"train: error: {said}")


def test_defaults_of_a_class_are_read_as_typed_flags_are(cwd: Path) -> None:
    more = "class Odd(Line):\n    defaults = {'lr': 1, 'eval_every': 'epoch', 'compile': True}\n"
    (cwd / "odd.py").write_text(TASK + more)
    config, _ = parse(["--task", f"{cwd / 'odd.py'}:Odd", "--eval-every", "3"])
    assert (config.lr, config.eval_every, config.compile) == (1.0, 3, True)
    assert isinstance(config.lr, float)


def test_the_steps_of_a_file_win_over_the_epochs_of_a_class(cwd: Path) -> None:
    (cwd / "odd.py").write_text(f"{TASK}\n\nclass Odd(Line):\n    defaults = {{'epochs': 3}}\n")
    flags = ("--task", f"{cwd / 'odd.py'}:Odd")
    config, _ = parse([*flags, "--steps", "5"])
    (cwd / "saved.toml").write_text(to_toml(config))
    for typed, length in (("--lr=1", (5, None)), ("--epochs=2", (5, 2)), ("--steps=7", (7, None))):
        again, _ = parse(["--config", str(cwd / "saved.toml"), typed])
        assert (again.steps, again.epochs) == length


class Of(Task):
    """A task with one hook of a kind."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def model(self) -> Any:
        return self.made

    def optimizer(self, _model: Any, _lr: float) -> Any:
        return self.made

    def dataset(self, _split: str) -> Any:
        return self.made


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda x: x, "model\\(\\) returns an object of the class function; return an nn.Module"),
        (torch.nn.LazyLinear(1), "parameters without a shape, weight, bias; pass a batch through"),
    ],
)
def test_what_is_no_model_is_named(made: Any, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        made_by(Of(made))


def of_class(name: str, size: int, **changes: Any) -> torch.optim.Optimizer:
    """Made in the test: the first optimizer of a process imports half of torch."""
    made: torch.optim.Optimizer = getattr(torch.optim, name)([torch.ones(size)])
    made.param_groups[0].update(changes)
    return made


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: "adam", "returns an object of the class str, which is no torch.optim"),
        (lambda: of_class("SGD", 1, lr=None), "of the class SGD, a group of which has no lr"),
        (lambda: of_class("LBFGS", 1), "of the class LBFGS, which asks for the loss several"),
        (lambda: of_class("SGD", 3), "1 of its 1 parameters from .* shape \\(3,\\)"),
    ],
)
def test_what_cannot_step_is_named(made: Any, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        own_optimizer(Of(made()), torch.nn.Linear(1, 1), 0.1)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (torch.ones((), requires_grad=True), "returns an object of the class Tensor; return the"),
        (None, "returns an object of the class NoneType"),
        ((1.5, 2), "returns a sum of the class float, which has no gradient"),
        ((torch.ones(2, 1, requires_grad=True), 2), "a tensor of the shape \\(2, 1\\) in place"),
        ((torch.ones(()), 2), "a sum that was detached from the parameters"),
    ],
)
def test_what_is_no_sum_to_learn_from_is_named(found: Any, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        sum_and_count(found)


class Exhausted:
    """A data set that reads on from a file which has ended."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, _index: int) -> Any:
        return next(iter(()))


@pytest.mark.parametrize("loaders", [0, pytest.param(2, marks=pytest.mark.full)])
def test_a_data_set_that_ends_early_loses_no_sample_in_silence(loaders: int) -> None:
    reader = Reader(Of(Exhausted()), "validation", "language", 0)
    feed = Feed(reader, [Batch(range(2), [0, 1])], loaders, torch.device("cpu"))
    with pytest.raises(RuntimeError, match=r"sample 0 of 'validation' raised StopIteration\(\)"):
        list(feed)


def test_a_file_that_holds_no_weights_is_refused_whatever_is_in_it(tmp_path: Path) -> None:
    model, file = torch.nn.Linear(2, 1), tmp_path / "weights.pt"
    torch.save(model.state_dict(), file)
    whole, dice = file.read_bytes(), random.Random(0)
    contents = [b"", b"hello\n", whole[: len(whole) // 2], *map(dice.randbytes, range(1, 400))]
    for content in contents:
        file.write_bytes(content)
        with pytest.raises(RefusedError, match=r"^--init: .* is no file of"):
            start_from(str(file), model)
    for value in ([1, 2], torch.ones(1), {1: torch.ones(1)}, {"weight": "text"}):
        torch.save(value, file)
        with pytest.raises(RefusedError, match=r"^--init: .* (holds no state_dict|is of another)"):
            start_from(str(file), model)


def test_runs_that_begin_in_the_same_second_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    together = Barrier(8)

    def one(_number: int) -> Path:
        together.wait()
        return claim(None, "line", overwrite=False, resume="never")

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(one, range(8)))) == 8


@pytest.mark.full
@pytest.mark.parametrize("flag", ["--help", "--steps=3"])
def test_a_deleted_working_directory_is_one_line(tmp_path: Path, flag: str) -> None:
    script = 'cd "$1" && rmdir "$1" && exec "$2" "$3" "$4"'
    words = ["sh", "-c", script, "sh", str(tmp_path), sys.executable, str(ENTRY), flag]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "train: error: the working directory cannot be found: No such file or directory; it may "
        "have been deleted, so type cd DIR first\n"
    )


@pytest.mark.full
@pytest.mark.parametrize("closed", [False, True])
def test_a_run_goes_on_when_nobody_reads_what_it_says(cwd: Path, closed: bool) -> None:
    words = [sys.executable, str(ENTRY), *FLAGS, "--task", "task.py:Line"]
    command = ["sh", "-c", 'exec "$@" >&-' if closed else 'exec "$@" >/dev/full', "sh", *words]
    done = subprocess.run(
        command, cwd=cwd, env=environment(0, 0, 0), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = "train: cannot write to stdout: No space left on device; the run goes on without it\n"
    assert done.stderr == ("" if closed else said)
    complete(0, *FLAGS, "--task", "task.py:Line", "--out", "other", cwd=cwd)
    ours, other = ((cwd / out / "evaluation.json").read_text() for out in ("here", "other"))
    assert ours == other


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="gives up what only root has")
def test_a_directory_that_may_not_be_written_to_is_one_line(cwd: Path) -> None:
    words = (*FLAGS, "--task", "task.py:Line")
    complete(0, *words, cwd=cwd)
    for place in ("config.toml", "evaluation.json", "."):
        path = cwd / "here" / place
        before = path.stat().st_mode
        path.chmod(0o555)
        drop = "--drop=cap_dac_override,cap_dac_read_search"
        command = ["capsh", drop, "--", "-c", 'exec "$@"', "sh", sys.executable, str(ENTRY)]
        how: Any = {"cwd": cwd, "env": environment(0, 0, 0), "capture_output": True, "text": True}
        done = subprocess.run([*command, *words, "--resume", "auto"], check=False, **how)
        path.chmod(before)
        assert done.returncode in (1, 2), done.stderr
        assert done.stderr.startswith("train: error: cannot write"), done.stderr
        assert done.stderr.count("\n") == 1


class Told(Task):
    """A task whose data set has ten samples, and which tells something of them."""

    def __init__(self, samples: Any = range(10)) -> None:
        self.samples = samples

    def dataset(self, _split: str) -> Any:
        return self.samples


@pytest.mark.parametrize(
    ("hooks", "flags", "said"),
    [
        ({"blocks": [4, 5]}, {}, "returns blocks of 9 samples together, and the data set 'train'"),
        ({"blocks": [11, -1]}, {}, "returns numbers from -1 to 11, "),
        ({"lengths": [1.5] * 10}, {}, "returns float64 of the shape \\(10,\\), "),
        ({"lengths": [1] * 9}, {}, "returns 9 numbers, .* whole number of 0 or more for each samp"),
        ({"weights": [float("nan")] * 10}, {}, "returns numbers from nan to nan, "),
        ({"weights": [0] * 10}, {}, "returns nothing but zeros, "),
        ({"weights": [1] * 10, "blocks": [10]}, {}, "has blocks\\(\\) and weights\\(\\), and samp"),
        ({}, {"block_window": 3}, "--block-window counts blocks, and the task told has no blocks"),
        ({}, {"global_tokens": 3}, "--global-tokens goes by lengths, .* type --global-batch"),
        ({"lengths": [9] * 10}, {"global_tokens": 8}, "longest sample, of 9; .* 9 or more"),
        ({"lengths": [9] * 10}, {"global_tokens": 8, "global_batch": 8}, "leave one of them out"),
        ({"lengths": [1] * 10}, {"accumulate": 11}, "there are 10 samples, and a step makes 11"),
    ],
)
def test_what_hooks_say_of_other_samples_is_refused(
    hooks: dict[str, Any], flags: dict[str, Any], said: str
) -> None:
    told = {name: lambda _self, _samples, found=found: found for name, found in hooks.items()}
    task = type("Told", (Told,), told)()
    with pytest.raises(RefusedError, match=said):
        order_of(task, Reader(task, "train", "language", 0), Config(**flags), World())


def test_samples_that_come_in_turn_have_no_blocks_and_no_epochs() -> None:
    task = type("Told", (Told,), {"blocks": lambda _self, _samples: [3]})({1, 2, 3})
    with pytest.raises(RefusedError, match=r"no index to go by"):
        order_of(task, Reader(task, "train", "language", 0), Config(), World())
    with pytest.raises(RefusedError, match=r"numbers of steps"):
        schedule(Config(epochs=2), NO_END, 8)


def test_an_attribute_of_a_task_is_no_hook() -> None:
    task = Told()
    task.weights = torch.ones(3)  # type: ignore[method-assign, assignment]
    order = order_of(task, Reader(task, "train", "language", 0), Config(), World())
    assert order.kind.name == "shuffled"


@pytest.mark.parametrize("hook", ["lengths", "weights"])
def test_numbers_in_a_mapped_file_are_not_copied(tmp_path: Path, hook: str) -> None:
    np.save(tmp_path / "of.npy", np.full(5_000_000, 3, dtype=np.int16))
    mapped = np.load(tmp_path / "of.npy", mmap_mode="r")
    task = type("Told", (Told,), {hook: lambda *_: mapped})(mapped)
    tracemalloc.start()
    order_of(task, Reader(task, "train", "language", 0), Config(), World()).batch(0, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < mapped.nbytes / 2


def test_an_order_that_is_not_known_is_refused() -> None:
    task, record = Told(), {"version": 9, "samples": 0, "budgets": []}
    with pytest.raises(RefusedError, match="has version 9"):
        order_of(task, Reader(task, "train", "language", 0), Config(), World(), record)


def test_a_module_that_a_flag_needs_is_named() -> None:
    with pytest.raises(RefusedError, match=r"^nowhere is not .* 'spawnlaunch\[plots\]'$"):
        needed("nowhere.at.all", "plots")
