"""The files that one step of the training passes through are few enough to be read in a row."""

import json
from pathlib import Path

import pytest

from tests.train.ranks import complete

MOST_FILES = 9
# From the forward pass of one training step to that of the next but one, with a line of the log.
TRACED = """
import json, os, pathlib, sys
import torch


class Traced:
    passes = 0
    entered = set()

    def model(self):
        return torch.nn.Linear(2, 1)

    def dataset(self, split):
        return torch.ones(32, 2)

    def loss(self, model, batch):
        if model.training:
            self.passes += 1
            if self.passes == 3:
                sys.setprofile(self.enter)
            if self.passes == 5:
                sys.setprofile(None)
                file = pathlib.Path(f"entered-{os.environ['RANK']}.json")
                file.write_text(json.dumps(sorted(self.entered)))
        return model(batch).square().sum(), len(batch)

    def enter(self, frame, event, _arg):
        if event == "call":
            self.entered.add(frame.f_code.co_filename)
"""


@pytest.mark.full
@pytest.mark.parametrize("world", [1, 2])
def test_a_step_passes_through_at_most_nine_files(tmp_path: Path, world: int) -> None:
    (tmp_path / "traced.py").write_text(TRACED)
    flags = ("--task", "traced.py:Traced", "--device", "cpu", "--steps", "9", "--log-every", "1")
    complete(world, *flags, "--eval-every", "0", cwd=tmp_path)
    for rank in range(world):
        entered = map(Path, json.loads((tmp_path / f"entered-{rank}.json").read_text()))
        ours = sorted(path.name for path in entered if path.parent.name == "train")
        assert "loop.py" in ours
        assert "learner.py" in ours
        assert len(ours) <= MOST_FILES, ", ".join(ours)
