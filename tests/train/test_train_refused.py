"""What a task, a file or a flag has wrong is told in words, before anything is trained."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from spawnlaunch.train.commandline import parse
from spawnlaunch.train.config import Config, to_toml
from spawnlaunch.train.errors import RefusedError, needed
from spawnlaunch.train.order import NO_END, Batch
from tests.support.late import Late

torch = Late("torch")
model_of = Late("spawnlaunch.train.model")
data = Late("spawnlaunch.train.data")
feeds = Late("spawnlaunch.train.feed")
optimizers = Late("spawnlaunch.train.optimizer")
trainer = Late("spawnlaunch.train.trainer")
task_of = Late("spawnlaunch.train.task")
saving = Late("spawnlaunch.train.saving")
schedule = Late("spawnlaunch.train.schedule")


def of(made: Any = range(10), **hooks: Any) -> Any:
    """A task whose hooks return what was made, but those that are named what is said here."""
    own = {"model": made, "optimizer": made, "dataset": made, **hooks}
    told = {name: lambda *_, found=found: found for name, found in own.items()}
    return type("Told", (task_of.Task,), told)()


def order_of(hooks: dict[str, Any], samples: Any = range(10), **flags: Any) -> Any:
    """The order of the samples of a task with these hooks."""
    return arrange(of(samples, **hooks), **flags)


def arrange(task: Any, **flags: Any) -> Any:
    from spawnlaunch.train.arranged import order_of
    from spawnlaunch.train.distributed import World

    reader = data.Reader(task, "train", "language", 0)
    return order_of(task, reader, Config(**flags), World())


def complex_model() -> Any:
    model = torch.nn.Linear(1, 1)
    model.phase = torch.nn.Parameter(torch.ones(1, dtype=torch.complex64))
    return model


def own_optimizer(*shape: int) -> Any:
    made = torch.optim.SGD([torch.ones(shape)])
    return optimizers.make(of(made), torch.nn.Linear(1, 1), [], Config())


def samples_of(made: Any) -> Any:
    return data.samples_of(of(made), "validation", 0)


def learning(*shape: int) -> Any:
    return torch.ones(shape, requires_grad=True)


def rate(**flags: Any) -> Any:
    return schedule.schedule(Config(**{"steps": 8, **flags}), 100, 8)


MADE: list[tuple[Callable[[], Any], str]] = [
    # Models.
    (
        lambda: model_of.learning_of(torch.nn.Linear(1, 1).requires_grad_(False)),
        r"^model\(\) has no parameter that learns: all of them are frozen, or there",
    ),
    # Optimizers.
    (lambda: model_of.learning_of(complex_model()), "^the parameter phase is complex, which neit"),
    (
        lambda: model_of.learning_of(torch.nn.Sequential(torch.nn.Embedding(2, 1, sparse=True))),
        "^the gradient of 0.weight is sparse, which can be neither clipped nor",
    ),
    (
        lambda: optimizers.make(of([1, 2]), torch.nn.Linear(1, 1), [], Config()),
        r"^optimizer\(\) returns an object of the class list; return one torch.optim.Optimizer, ",
    ),
    (lambda: own_optimizer(3), r"1 of its 1 parameters from .* shape \(3,\)"),
    # Losses.
    (lambda: trainer.sum_and_count(learning()), "an object of the class Tensor; return the sum"),
    (lambda: trainer.sum_and_count((1.5, 2)), "a sum of the class float, which has no gradient"),
    (lambda: trainer.sum_and_count((learning(2, 1), 2)), r"of the shape \(2, 1\) in place of"),
    (lambda: trainer.sum_and_count((torch.ones(()), 2)), "sum that was detached from the param"),
    # Data sets.
    (
        lambda: samples_of([]),
        "^the data set 'validation' of the task told is empty; return samples",
    ),
    (
        lambda: samples_of(torch.utils.data.DataLoader([1])),
        "the data set 'validation' of the task told is a DataLoader, and the loop",
    ),
    (lambda: samples_of(iter([1])), "can be read only once; return samples"),
    # What hooks say of the samples, and flags about it.
    (lambda: order_of({"lengths": [1.5] * 10}), r"returns float64 of the shape \(10,\); "),
    (lambda: order_of({"lengths": [1] * 9}), r"int64 of the shape \(9,\); return a whole number"),
    (lambda: order_of({}, global_tokens=3), "--global-tokens goes by lengths, .* --global-batch"),
    (lambda: order_of({"lengths": [9] * 10}, global_tokens=8), "longest sample, of 9; .* 9 or mor"),
    (
        lambda: order_of({"lengths": [1] * 10}, accumulate=11),
        "there are 10 samples, and a step makes 11",
    ),
    # Schedules.
    (lambda: rate(warmup=9), "^--warmup is 9, and the run has 8 steps; use 8 or less"),
    (
        lambda: schedule.schedule(Config(epochs=2), NO_END, 8),  # of samples that come in turn
        "numbers of steps",
    ),
    # Files.
    (
        lambda: saving.begin(Config(), Path("/none"), schedule.Position()),
        "cannot write to .*: No such file or directory; look",
    ),
    (lambda: needed("nowhere.at.all", "plots"), r"^nowhere is not .* 'spawnlaunch\[plots\]'$"),
]


@pytest.mark.parametrize(("make", "said"), MADE, ids=[said for _, said in MADE])
def test_what_cannot_be_trained_is_named(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        make()


def test_a_file_that_holds_no_weights_is_refused_whatever_is_in_it(tmp_path: Path) -> None:
    model, file = torch.nn.Linear(2, 1), tmp_path / "weights.pt"
    with pytest.raises(RefusedError, match=r"^--init: cannot read .*: No such file or directory"):
        model_of.start_from(str(file), model)
    torch.save(model.state_dict(), file)
    whole, dice = file.read_bytes(), random.Random(0)
    contents = [b"", b"hello\n", whole[: len(whole) // 2], *map(dice.randbytes, range(1, 400))]
    for content in contents:
        file.write_bytes(content)
        with pytest.raises(
            RefusedError, match=r"^--init: .* is not a file of weights that torch.l"
        ):
            model_of.start_from(str(file), model)
    for value in ([1, 2], torch.ones(1), {1: torch.ones(1)}, {"weight": "text"}):
        torch.save(value, file)
        with pytest.raises(RefusedError, match=r"^--init: .* (holds no state_dict|is of another)"):
            model_of.start_from(str(file), model)


class Exhausted:
    """A data set that reads on from a file which has ended."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, _index: int) -> Any:
        return next(iter(()))


@pytest.mark.parametrize("loaders", [0, pytest.param(2, marks=pytest.mark.full)])
def test_a_data_set_that_ends_early_loses_no_sample_in_silence(loaders: int) -> None:
    reader = data.Reader(of(Exhausted()), "validation", "language", 0)
    feed = feeds.Feed(reader, [Batch(range(2), [0, 1])], loaders, torch.device("cpu"))
    with pytest.raises(RuntimeError, match=r"sample 0 of 'validation' raised StopIteration\(\)"):
        list(feed)


def test_runs_that_begin_in_the_same_second_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    together, claim = Barrier(8), partial(saving.claim, Config(), "line")

    def one(_number: int) -> Any:
        together.wait()
        return claim()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(one, range(8)))) == 8


# What a class says of flags.

LINE = """
import pathlib


class Line:
    def model(self): ...
    def dataset(self, split): ...
    def loss(self, model, batch): ...
"""


def typed(cwd: Path, body: str, *flags: str) -> Config:
    """The configuration of a task with this line of its own, and these flags."""
    (cwd / "odd.py").write_text(f"{LINE}\n\nclass Odd(Line):\n    {body}\n")
    return parse(["--task", f"{cwd / 'odd.py'}:Odd", *flags])[0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("defaults = {'stpes': 3}", "Odd.defaults: unrecognized arguments: --stpes=3"),
        ("defaults = {'steps': 3, 'epochs': 3}", "Odd.defaults: argument --epochs: not allowed"),
        ("defaults = {'betas': (0.9, 0.9)}", "Odd.defaults: betas is not a number, a text, true"),
        ("__init__ = lambda self, config='': None", "Odd has an option config, and so has"),
        (
            "def __init__(self, file: pathlib.Path): ...",
            "--task: the parameter file of Odd is of the type Path; make it int, float, str or",
        ),
        ("def __init__(self, points: int): ...", "the following arguments are required: --points"),
    ],
)
def test_what_a_class_says_of_flags_is_checked_as_flags_are(
    tmp_path: Path, body: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        typed(tmp_path, body)
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith(f"train: error: {said}")


def test_defaults_of_a_class_are_read_as_typed_flags_are(tmp_path: Path) -> None:
    body = "defaults = {'lr': 1, 'eval_every': 'epoch', 'compile': True}"
    config = typed(tmp_path, body, "--eval-every", "3")
    assert (config.lr, config.eval_every, config.compile) == (1.0, 3, True)
    assert isinstance(config.lr, float)


def test_the_steps_of_a_file_win_over_the_epochs_of_a_class(tmp_path: Path) -> None:
    body, saved = "defaults = {'epochs': 3}", tmp_path / "saved.toml"
    saved.write_text(to_toml(typed(tmp_path, body, "--steps", "5")))
    for flag, length in (("--lr=1", (5, None)), ("--epochs=2", (350, 2)), ("--steps=7", (7, None))):
        again, _ = parse(["--config", str(saved), flag])
        assert (again.steps, again.epochs) == length


def test_what_a_class_needs_may_be_typed_beside_a_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("lr = 0.01\n")
    body = "def __init__(self, points: int, name: str | None = None): ..."
    config = typed(tmp_path, body, "--points", "3", "--config", str(tmp_path / "run.toml"))
    assert (config.lr, config.options) == (0.01, {"points": 3, "name": None})
