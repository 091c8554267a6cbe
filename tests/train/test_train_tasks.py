"""A task of one's own: how it is found, and what its batches and its classes may be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.late import Late
from tests.train.ranks import assert_refused, complete, history, metrics, run, text_of

torch = Late("torch")
feed = Late("spawnlaunch.train.feed")

MINIMAL = text_of("minimal")
FLAGS = ("--device", "cpu", "--log-every", "1", "--lr", "0.1", "--steps", "20")


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """A directory with a task in the file train.py, which is our package's name too."""
    (tmp_path / "train.py").write_text(MINIMAL)
    (tmp_path / "mine.py").write_text(MINIMAL)
    (tmp_path / "helper.py").write_text("def line(x, slope):\n    return slope * x\n")
    return tmp_path


@pytest.mark.full
def test_three_methods_and_a_constructor_make_a_task(cwd: Path) -> None:
    flags = (*FLAGS, "--task", "train.py:Line", "--slope", "3", "--out", "here")
    first, _ = complete(2, *flags, cwd=cwd)
    assert "96 samples to train on, 7" in first.out
    losses = metrics(cwd / "here", "loss")
    assert losses[-1] < 0.8 * losses[0]
    config = (cwd / "here" / "config.toml").read_text()
    assert "slope = 3.0\npoints = 96\n" in config
    assert 'task = "train.py:Line"\n' in config


@pytest.mark.full
def test_loader_processes_read_the_same_samples_of_a_task_in_a_module(cwd: Path) -> None:
    flags = (*FLAGS, "--task", "mine:Line", "--accumulate", "2", "--eval-every", "7")
    for loaders in ("0", "2"):
        complete(2, *flags, "--loader-workers", loaders, "--out", loaders, cwd=cwd)
    assert history(cwd / "2") == history(cwd / "0")
    (ended,) = run(1, *flags[:-4], "--task", "mine.py:Stuck", "--loader-workers", "1", cwd=cwd)
    assert_refused([ended], "--task mine.py:Stuck:")
    assert ended.err.endswith("; use --loader-workers 0\n")


# Batches, brought to a device that no tensor of the CPU can be added to.


class Whole:
    """What is moved as a whole, as the BatchEncoding of transformers is."""

    def to(self, device: Any, *, non_blocking: bool = False) -> tuple[str, bool]:
        return device.type, non_blocking


class Forwarded:
    """What hands on the words of its ``to``."""

    def to(self, *words: Any, **named: Any) -> tuple[Any, Any]:
        return words, named


@dataclass
class Plain:
    pair: Any = None

    def __post_init__(self) -> None:
        self.pair = Pair(torch.ones(1), "text")


class Pair(NamedTuple):
    x: Any
    to: str  # no method, as that of a tensor is


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    rest: list[Plain]


class Named(dict[str, Any]):
    """A batch whose items are attributes too, with one that is no item."""

    limit = 0

    @property
    def x(self) -> Any:
        return self["x"]


@pytest.mark.full
def test_what_a_batch_is_made_of_is_moved_and_stays_of_its_class() -> None:
    there, named = torch.device("meta"), Named(x=torch.ones(2))
    named.limit = 3
    for batch in (Frozen(torch.ones(2), [Plain()]), named):
        moved = feed.to_device(batch, there)
        assert type(moved) is type(batch)
        assert (moved.x.device.type, batch.x.device.type) == ("meta", "cpu")  # left as it was
    assert feed.to_device(named, there).limit == 3
    pair = feed.to_device([Plain()], there)[0].pair
    assert (pair.x.device.type, pair.to) == ("meta", "text")
    moved = feed.to_device({"a": (torch.ones(1), [Whole()]), "b": "text"}, there)
    assert moved["a"][0].device == there
    assert (moved["a"][1], moved["b"]) == ([("meta", True)], "text")  # copied beside computation
    assert feed.to_device([Forwarded()], there) == [((there,), {"non_blocking": True})]
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
    assert feed.to_device(packed, there).data.device == there


@pytest.mark.full
@pytest.mark.parametrize("size", [(), (2, 2)])
def test_what_a_task_counts_is_brought_to_the_device(size: tuple[int, ...]) -> None:
    for value in (torch.full(size, 3), 3):
        assert feed.number_on(value, torch.device("meta")).device.type == "meta"
        here = feed.number_on(value, torch.device("cpu"))
        assert (here == 3).all()
