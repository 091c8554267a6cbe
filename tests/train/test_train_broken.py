"""What a run leaves behind when something is wrong with its numbers or its code."""

import json
import re
from pathlib import Path

import pytest

from spawnlaunch.train.order import Order, Shuffled
from spawnlaunch.train.tasks.language import Language
from tests.train.ranks import ENTRY, SMALL, TEXT, history, run

FLAGS = (*SMALL, "--context", "16", "--batch-size", "3", "--out", "here", "--log-every", "1")
NOT_A_NUMBER = """
import os, torch
from spawnlaunch.train.tasks.language import Language

class Bad(Language):
    passes = -1  # the first is the one that arranges buckets

    def loss(self, model, batch):
        loss, count = super().loss(model, batch)
        Bad.passes += model.training
        bad = os.environ["RANK"] == "1" and Bad.passes == 6
        return loss * (float("nan") if bad else 1), count
"""
RAISES = """
from spawnlaunch.train.tasks.language import Language

class Broken(Language):
    def loss(self, model, batch):
        raise KeyError("the user's own")
"""


@pytest.mark.full
def test_a_loss_that_is_no_number_stops_with_rank_step_and_samples(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(NOT_A_NUMBER)
    flags = ("--task", "bad.py:Bad", "--accumulate", "2", "--steps", "50")
    errors = {"TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")}
    ranks = run(2, *FLAGS, *flags, cwd=tmp_path, **errors)
    assert [rank.status for rank in ranks] == [1, 1]
    length = len(Language(context=16, text=TEXT).dataset("train"))
    order = Order(Shuffled(length, 0), global_batch=12, accumulate=2, rank=1, world_size=2)
    samples = ", ".join(map(str, order.batch(2 * 12, 1).indices))
    said = f"rank 1: the loss of step 3 is nan, on the training samples {samples}; look at them, "
    assert ranks[0].err.startswith(f"train: error: {said}")
    assert ranks[0].err.count("\n") == 1
    assert ranks[1].err == ""
    assert [line["step"] for line in history(tmp_path / "here")] == [1, 2]
    assert not list((tmp_path / "here").glob("step-*"))
    assert said in json.loads((tmp_path / "error.json").read_text())["message"]["message"]


@pytest.mark.full
def test_an_error_is_filed_as_torch_files_it(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(RAISES)
    file = tmp_path / "error.json"
    flags = (*FLAGS, "--task", "broken.py:Broken")
    (ended,) = run(0, *flags, cwd=tmp_path, TORCHELASTIC_ERROR_FILE=str(file))
    assert ended.status == 1
    assert ended.err.endswith('KeyError: "the user\'s own"\n')
    message = json.loads(file.read_text())["message"]
    assert message["message"] == 'KeyError: "the user\'s own"'
    assert message["extraInfo"]["py_callstack"] == ended.err
    assert re.fullmatch(r"\d{10}", message["extraInfo"]["timestamp"])


@pytest.mark.full
def test_torchrun_shows_the_error_of_the_rank_that_failed(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(RAISES)
    (tmp_path / "torchrun.py").write_text("from torch.distributed.run import main\nmain()\n")
    words = ("--standalone", "--nproc-per-node", "2", str(ENTRY), *FLAGS)
    (ended,) = run(
        0, *words, "--task", "broken.py:Broken", cwd=tmp_path, program=tmp_path / "torchrun.py"
    )
    assert ended.status == 1
    assert "the user's own" in ended.err[ended.err.index("Root Cause") :]


@pytest.mark.full
def test_a_disk_that_is_full_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "limited.py").write_text(
        "import resource, signal\n"
        "from spawnlaunch.train.tasks.language import Language\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    )
    flags = ("--task", "limited.py:Language", "--save-every", "2", "--steps", "50")
    (ended,) = run(0, *FLAGS, *flags, cwd=tmp_path)
    assert ended.status == 1
    assert ended.err == (
        "train: error: cannot write the checkpoint of step 2 to here: File too large; make room, "
        "or go on elsewhere with --resume and --out\n"
    )
    assert [path.name for path in (tmp_path / "here").glob("step-*")] in (
        [],
        ["step-00000002.part"],
    )
