"""The best checkpoint, by the loss or by a measure: what is kept, exported, and waited for."""

import json
import re
import shlex
from pathlib import Path

import pytest

from spawnlaunch.train.commandline import parse
from spawnlaunch.train.config import aim
from tests.support.late import Late
from tests.train.ranks import ROOT, complete, metrics, run, text_of

torch = Late("torch")

FLAGS = (
    *("--device", "cpu", "--task", "past.py:Past", "--lr", "0.1", "--warmup", "0", "--out", "here"),
    *("--schedule", "constant", "--weight-decay", "0", "--steps", "40", "--eval-every", "1"),
    *("--save-every", "0", "--log-every", "1"),
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("best", "name", "world", "loaders"),
    [("loss", "validation_loss", 1, 0), ("score:max", "score", 3, 2)],
)
def test_a_run_ends_when_it_gets_no_better_and_exports_the_best(
    tmp_path: Path, best: str, name: str, world: int, loaders: int
) -> None:
    (here := tmp_path / "here").mkdir()
    (here / "past.py").write_text(text_of("past"))
    flags = ("--best", best, "--patience", "3", "--resume", "auto", "--out", ".")
    more = ("--loader-workers", str(loaders))
    first, *_ = complete(world, *FLAGS, *flags, *more, cwd=here)
    values = metrics(here, name)
    pick = min if best == "loss" else max
    assert ("best: max of score\n" in first.out) == (best != "loss")
    step = values.index(pick(values)) + 1
    assert 2 < step < 12
    assert len(values) == step + 3  # and three that were no better
    measure = best.partition(":")[0]
    said = f"no better {measure} in 3 validations since step {step}: ended after step {step + 3}\n"
    assert said in first.out
    assert f"weights, of step {step}\n" in first.out
    saved = torch.load(here / "best" / "weights.pt", weights_only=True)
    exported = torch.load(here / "exported.pt", weights_only=True)
    assert torch.equal(exported["weight"], saved["weight"])
    assert (here / "best").resolve().name == f"step-{step:08}"
    started = f"spawnlaunch --nproc {world} --"
    (line,) = re.findall(f"step {step}; to evaluate it: {started} (.*)", first.out)
    complete(world, *shlex.split(line), cwd=here)
    found = json.loads((here / ".-best" / "evaluation.json").read_text())["validation"]
    assert found[{"validation_loss": "loss"}.get(name, name)] == pytest.approx(values[step - 1])
    again, *_ = complete(world, *FLAGS, *flags, *more, cwd=here)
    assert "step " + str(step + 4) not in again.out
    assert metrics(here, name) == values


@pytest.mark.parametrize(
    ("text", "measure", "more_is_better"),
    [
        ("loss", "loss", False),
        ("f1:min", "f1", False),
        ("wer:max", "wer", True),
        ("a:b:max", "a:b", True),
    ],
)
def test_which_way_is_better_is_typed(text: str, measure: str, more_is_better: bool) -> None:
    config, _ = parse(["--best", text])
    assert aim(config.best) == (measure, more_is_better)


WATCHED = text_of("watched")


@pytest.mark.full
def test_best_always_leads_to_a_checkpoint(tmp_path: Path) -> None:
    """Whatever is renamed or removed: looked at before each of these calls."""
    program = tmp_path / "watched.py"
    program.write_text(WATCHED)
    (tmp_path / "run").mkdir()
    (ended,) = run(0, cwd=tmp_path, program=program, PYTHONPATH=str(ROOT))
    assert (ended.out, ended.err) == ("looked []\n", "")
