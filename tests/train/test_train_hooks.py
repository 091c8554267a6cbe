"""A hook that is missing, misspelt or half there is an error at once, and a mean for a sum too."""

import json
import re
from pathlib import Path

import pytest
import torch

from spawnlaunch.train.errors import RefusedError
from spawnlaunch.train.means import is_mean
from spawnlaunch.train.task import HOOKS, NEEDED, Task, complete, has
from tests.train import ranks

HEAD = """
import torch
import torch.nn.functional as F
from spawnlaunch.train.task import Task


class Base{above}:
    def model(self):
        return torch.nn.Linear(2, 3)

    def dataset(self, split):
        generator = torch.Generator().manual_seed(len(split))
        return [(torch.randn(2, generator=generator), i % 3) for i in range(40)]

    def loss(self, model, batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)

"""
FLAGS = ("--device", "cpu", "--steps", "2", "--batch-size", "4", "--task", "own.py:Own")


def own(cwd: Path, body: str, above: str = "(Task)") -> None:
    """Write a task with these lines of its own."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (cwd / "own.py").write_text(HEAD.format(above=above) + f"\nclass Own(Base):\n{lines}\n")


@pytest.mark.parametrize("above", ["", "(Task)"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("dataset = None", "has a dataset that is no method"),
        ("def measure(self, model, batch): ...", "has measure() without report(), and they go"),
        ("def prepare(self, directory): ...", "has prepare() without prepared(), and they go"),
        ("def prepared(self, directory): ...", "has prepared() without prepare(), and they go"),
        ("def colate(self, samples): ...", "has a method colate(), which nobody calls; rename it "),
        ("def optimiser(self, m, lr): ...", "to optimizer(), or to _optimiser() if it is your own"),
        ("default = {'lr': 0.1}", "has default = {'lr': 0.1}, which nobody reads; rename it to de"),
        ("units = 'bits'", "rename it to unit, or to _units if it is your own"),
        ("def export(self, model): ...", "has export(self, model), which the loop calls as export"),
    ],
)
def test_a_hook_that_nobody_would_call_is_refused(body: str, said: str, above: str) -> None:
    names: dict[str, type] = {}
    exec(HEAD.format(above=above) + f"class Own(Base):\n    {body}\n", names)
    with pytest.raises(RefusedError) as refused:
        complete(names["Own"])
    assert str(refused.value).startswith("--task: the class Own ")
    assert said in str(refused.value)


@pytest.mark.full
def test_what_is_refused_is_one_line_of_rank_0(tmp_path: Path) -> None:
    own(tmp_path, "def mesure(self, model, batch): ...")
    first, second = ranks.run(2, *FLAGS, cwd=tmp_path)
    assert (first.status, second.status, second.err) == (2, 2, "")
    assert first.err == (
        "train: error: --task: the class Own has a method mesure(), which nobody calls; rename it "
        "to measure(), or to _mesure() if it is your own\n"
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("missing", NEEDED)
def test_a_hook_without_a_default_is_asked_for(missing: str) -> None:
    present = {name: vars(Task)[name] for name in NEEDED}
    hooks = {name: lambda *_: None for name in present if name != missing}
    with pytest.raises(RefusedError, match=rf"has no {missing}\(\); write one, as docs/train.md"):
        complete(type("Partial", (), hooks))


def test_a_class_that_inherits_from_nothing_has_the_defaults() -> None:
    class Plain:
        def model(self) -> None: ...

        def dataset(self, split: str) -> list[int]:
            return [len(split)]

        def loss(self, model: object, batch: torch.Tensor) -> tuple[torch.Tensor, int]:
            return batch.sum() * (model is not None), len(batch)

        names = ("zero", "one")  # no text, as a name would be
        units: str = "a flag, for it is a parameter"

        def __init__(self, units: str = "") -> None:
            self.units = units

        def losses(self) -> None: ...  # like a hook that it has: no mistake

        @staticmethod
        def collate(samples: list[int]) -> torch.Tensor:
            return torch.tensor(samples)

    complete(Plain)
    assert {name for name in HOOKS if has(Plain(), name)} == {*NEEDED, "collate"}
    task: Task = Plain()  # type: ignore[assignment]
    measured = task.measure(torch.nn.Identity(), torch.ones(3))
    assert (float(measured["loss"]), measured["count"]) == (3.0, 3)
    assert (task.report({}), task.unit, task.describe()) == ({}, "", "")


MEAN = "x, y = batch\n    loss = F.cross_entropy(model(x), y)\n    "
MEANS = {
    "loss": f"def loss(self, model, batch):\n    {MEAN}return loss, len(y)",
    "measure": f"def measure(self, model, batch):\n    {MEAN}"
    'return {"loss": loss, "count": len(y)}\n'
    "def report(self, sums):\n    return {}",
}


@pytest.mark.full
@pytest.mark.parametrize(("world", "loaders"), [(2, 0), (1, 0), (1, 2), (3, 2)])
@pytest.mark.parametrize("name", MEANS)
def test_a_mean_where_a_sum_is_meant_is_refused(
    tmp_path: Path, name: str, world: int, loaders: int
) -> None:
    own(tmp_path, MEANS[name])
    first, *others = ranks.run(world, *FLAGS, "--loader-workers", str(loaders), cwd=tmp_path)
    assert first.status == 2
    assert first.err.startswith(f"train: error: {name}() of the task own returns a mean: ")
    assert first.err.endswith('as reduction="sum" does, and the count\n')
    assert [(other.status, other.err) for other in others] == [(2, "")] * (world - 1)


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
    assert is_mean(whole, one, other) is mean


@pytest.mark.full
def test_the_look_at_the_first_batch_changes_no_number(tmp_path: Path) -> None:
    """The losses are those of a loop that does not look: dropout and BatchNorm are in the model."""
    (tmp_path / "own.py").write_text(
        HEAD.format(above="(Task)")
        + """
import random

class Own(Base):
    def model(self):
        return torch.nn.Sequential(
            torch.nn.Linear(2, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.Dropout(),
            torch.nn.Linear(8, 3),
        )

    def loss(self, model, batch):
        if not model.training and not getattr(self, "odd", False):
            self.odd = True
            raise ValueError("no half of a batch, please")
        return super().loss(model, batch)

class Looked(Own):
    odd = True
"""
    )
    for name in ("Own", "Looked"):
        flags = (*FLAGS[:-1], f"own.py:{name}", "--out", name, "--log-every", "1")
        ranks.complete(1, *flags, cwd=tmp_path)
    assert ranks.metrics(tmp_path / "Own", "loss") == ranks.metrics(tmp_path / "Looked", "loss")


@pytest.fixture
def documented(tmp_path: Path) -> Path:
    """A directory with the files that docs/train.md shows."""
    page = (ranks.ROOT / "docs" / "train.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.S):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.full
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
    assert {"points_per_second", "tflops"} < set(line)
    assert (documented / "here" / "xor.pt").exists()
    own = "".join(file.read_text() for file in documented.glob("*.py"))
    for name in HOOKS:
        assert re.search(rf"^    (def {name}\(|{name} = )", own, re.M), name
