"""The best checkpoint, by the loss or by a measure: what is kept, exported, and waited for."""

from pathlib import Path

import pytest
import torch

from tests.train.past import PAST
from tests.train.ranks import complete, metrics, run

FLAGS = (
    *("--device", "cpu", "--task", "past.py:Past", "--lr", "0.1", "--warmup", "0", "--out", "here"),
    *("--schedule", "constant", "--weight-decay", "0", "--steps", "40", "--eval-every", "1"),
    *("--save-every", "0", "--log-every", "1"),
)


@pytest.mark.parametrize(
    ("world", "loaders"),
    [(2, 0), *(pytest.param(n, k, marks=pytest.mark.full) for n, k in ((1, 0), (1, 2), (3, 2)))],
)
@pytest.mark.parametrize(("best", "name"), [("loss", "validation_loss"), ("score:max", "score")])
def test_a_run_ends_when_it_gets_no_better_and_exports_the_best(
    tmp_path: Path, best: str, name: str, world: int, loaders: int
) -> None:
    (tmp_path / "past.py").write_text(PAST)
    flags = ("--best", best, "--patience", "3", "--resume", "auto")
    more = ("--loader-workers", str(loaders))
    first, *_ = complete(world, *FLAGS, *flags, *more, cwd=tmp_path)
    values = metrics(tmp_path / "here", name)
    pick = max if best == "score:max" else min
    step = values.index(pick(values)) + 1
    assert 2 < step < 12
    assert len(values) == step + 3  # and three that were no better
    measure = best.partition(":")[0]
    said = f"no better {measure} in 3 validations since step {step}: ended after step {step + 3}\n"
    assert said in first.out
    assert f"exporting the best weights, of step {step}\n" in first.out
    saved = torch.load(tmp_path / "here" / "best" / "weights.pt", weights_only=True)
    exported = torch.load(tmp_path / "here" / "exported.pt", weights_only=True)
    assert torch.equal(exported["weight"], saved["weight"])
    assert (tmp_path / "here" / "best").resolve().name == f"step-{step:08}"
    again, *_ = complete(world, *FLAGS, *flags, *more, cwd=tmp_path)
    assert "step " + str(step + 4) not in again.out
    assert metrics(tmp_path / "here", name) == values


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        (("--best", "f1:max"), 1, "--best: the report has no 'f1'; type loss, score:max\n"),
        (
            ("--patience", "2", "--eval-every", "0"),
            2,
            "--patience counts validations, and there is none but the last; type --eval-every with "
            "4 or so\n",
        ),
    ],
)
def test_what_cannot_be_compared_is_told(
    tmp_path: Path, flags: tuple[str, ...], status: int, said: str
) -> None:
    (tmp_path / "past.py").write_text(PAST)
    ranks = run(2, *FLAGS, *flags, cwd=tmp_path)
    assert [rank.status for rank in ranks] == [status, status]
    assert [rank.err for rank in ranks] == [f"train: error: {said}", ""]
