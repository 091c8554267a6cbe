"""A hook that is missing, misspelt or half there is an error at once, and a mean for a sum too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train.errors import RefusedError
from tests.support.late import Late
from tests.train import ranks

torch = Late("torch")
task_of = Late("spawnlaunch.train.task")
pytestmark = pytest.mark.full
HEAD = ranks.text_of("base")
FLAGS = ("--device", "cpu", "--steps", "2", "--batch-size", "4", "--task", "own.py:Own")


class Plain:
    """A task that inherits from nothing."""

    names = ("zero", "one")  # no text, as a name would be
    units: str = "a flag, for it is a parameter"

    def __init__(self, units: str = "") -> None:
        self.units = units

    def model(self) -> None: ...

    def dataset(self, split: str) -> list[int]:
        return [len(split)]

    def loss(self, model: object, batch: torch.Tensor) -> tuple[torch.Tensor, int]:
        return batch.sum() * (model is not None), len(batch)

    def losses(self) -> None: ...  # like a hook that it has: no mistake

    @staticmethod
    def collate(samples: list[int]) -> torch.Tensor:
        return torch.tensor(samples)


@pytest.mark.parametrize(
    ("hook", "missing"),
    [
        ("state_dict", "load_state_dict"),
        ("measure", "report"),
        ("prepare", "prepared"),
        ("prepared", "prepare"),
    ],
)
def test_a_hook_without_the_one_that_it_needs_is_refused(hook: str, missing: str) -> None:
    needed = {name: vars(Plain)[name] for name in task_of.NEEDED}
    own = type("Own", (), {**needed, hook: lambda _: {}})
    with pytest.raises(RefusedError, match=rf"^--task: the class Own has no {missing}\(\); "):
        task_of.complete(own)


def test_a_hook_without_a_default_is_asked_for() -> None:
    for missing in task_of.NEEDED:
        hooks = {name: lambda *_: None for name in task_of.NEEDED if name != missing}
        with pytest.raises(RefusedError, match=rf"has no {missing}\(\); write one, as docs/tra"):
            task_of.complete(type("Partial", (), hooks))


def test_a_class_that_inherits_from_nothing_has_the_defaults() -> None:
    task_of.complete(Plain)
    task: Any = Plain()
    own = {name for name in task_of.HOOKS if task_of.has(task, name)}
    assert own == {*task_of.NEEDED, "collate"}
    measured = task.measure(torch.nn.Identity(), torch.ones(3))
    assert (float(measured["loss"]), measured["count"]) == (3.0, 3)
    assert (task.report({}), task.unit, task.describe()) == ({}, "", "")


MEAN = "x, y = batch\n        loss = F.cross_entropy(model(x), y)\n        "
MEANS = {
    "loss": f"    def loss(self, model, batch):\n        {MEAN}return loss, len(y)",
    "measure": f"    def measure(self, model, batch):\n        {MEAN}"
    'return {"loss": loss, "count": len(y)}\n'
    "    def report(self, sums):\n        return {}",
}


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_where_a_sum_is_meant_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "own.py").write_text(f"{HEAD}\nclass Own(Base):\n{MEANS[name]}\n")
    ended = ranks.run(2, *FLAGS, cwd=tmp_path)
    ranks.assert_refused(ended, f"{name}() of the task own returns a mean: ")
    assert ended[0].err.endswith('as reduction="sum" does, and the count\n')


@pytest.mark.parametrize(
    "loss",
    [
        "F.mse_loss(model(x)[:, :1], y.float(), reduction='sum')",
        "(model(x)[:, :1] - y).square().sum()",
    ],
)
def test_a_target_that_is_broadcast_is_named(tmp_path: Path, loss: str) -> None:
    body = f"x, y = batch\n        return {loss}, len(y)"
    own = f"class Own(Base):\n    def loss(self, model, batch):\n        {body}\n"
    (tmp_path / "own.py").write_text(f"{HEAD}\n{own}")
    first, _ = ranks.complete(2, *FLAGS, cwd=tmp_path)
    assert "loss() of the task own is not a sum over samples: " in first.out


@pytest.mark.parametrize(
    ("whole", "one", "other", "mean"),
    [
        ((1.5, 8), (1.4, 4), (1.6, 4), True),
        ((12.0, 8), (5.6, 4), (6.4, 4), False),
        ((1.2, 3), (1.0, 1), (1.3, 2), True),
        ((0.7, 1), (0.6, 1), (0.8, 1), False),  # a mean of one term: so it says itself
        ((0.0, 8), (0.0, 4), (0.0, 4), False),
        ((float("nan"), 8), (1.0, 4), (1.0, 4), False),
        ((24.0, 8), (9.0, 4), (9.0, 4), False),  # every sample with every other
    ],
)
def test_a_sum_is_what_its_halves_add_up_to(
    whole: tuple[float, int], one: tuple[float, int], other: tuple[float, int], mean: bool
) -> None:
    from spawnlaunch.train.checks import is_mean

    assert is_mean(whole, one, other) is mean


LOOKED_AT = """
class Own(Base):
    odd = False  # whether it will not have half a batch

    def model(self):
        norm, drop = torch.nn.BatchNorm1d(8), torch.nn.Dropout()
        return torch.nn.Sequential(torch.nn.Linear(2, 8), norm, drop, torch.nn.Linear(8, 3))

    def loss(self, model, batch):
        if not model.training and self.odd:
            self.odd = False
            raise ValueError("no half of a batch, please")
        return super().loss(model, batch)

class Odd(Own):
    odd = True
"""


def test_the_look_at_the_first_batch_changes_no_number(tmp_path: Path) -> None:
    """The losses are those of a loop that does not look: dropout and BatchNorm are in the model."""
    (tmp_path / "own.py").write_text(HEAD + LOOKED_AT)
    for name in ("Own", "Odd"):
        flags = (*FLAGS[:-1], f"own.py:{name}", "--out", name, "--log-every", "1")
        ranks.complete(1, *flags, cwd=tmp_path)
    assert ranks.metrics(tmp_path / "Own", "loss") == ranks.metrics(tmp_path / "Odd", "loss")


@pytest.fixture
def documented(tmp_path: Path) -> Path:
    """A directory with the files that the pages on the loop show."""
    for page in (ranks.ROOT / "docs").glob("train*.md"):
        text = page.read_text(encoding="utf-8")
        for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.S):
            (tmp_path / name).write_text(code)
    return tmp_path


def test_the_documentation_has_an_example_of_every_hook(documented: Path) -> None:
    flags = ("--task", "every_hook.py:Everything", "--device", "cpu", "--out", "here")
    first, _ = ranks.complete(2, *flags, "--eval-splits", "train,validation,test", cwd=documented)
    assert first.out.startswith("xor: exclusive or, noise 0.1\n")
    assert "a sample:\n[" in first.out
    assert len(re.findall(r"^different +\[", first.out, re.M)) == 3
    found = json.loads((documented / "here" / "evaluation.json").read_text())
    assert min(found[split]["accuracy"] for split in ("train", "validation", "test")) > 0.95
    losses = ranks.metrics(documented / "here", "validation_loss")
    assert len(losses) == 300 * 16 // 1000 + 1  # behind each epoch and at the end
    line = json.loads((documented / "here" / "metrics.jsonl").read_text().splitlines()[0])
    assert "points_per_second" in line
    assert (documented / "here" / "xor.pt").exists()
    own = "".join(file.read_text() for file in documented.glob("*.py"))
    for name in task_of.HOOKS:
        assert re.search(rf"^    (def {name}\(|{name} = )", own, re.M), name
