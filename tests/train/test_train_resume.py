"""A run that was interrupted goes on as if nothing had happened."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.train.config import Config
from spawnlaunch.train.errors import RefusedError
from tests.support.late import Late
from tests.train.killing import FLAGS, NOISY
from tests.train.ranks import assert_refused, complete, history, metrics, run, text_of

torch = Late("torch")
checkpoint = Late("spawnlaunch.train.checkpoint")
saving = Late("spawnlaunch.train.saving")
LAST = "step-00000020"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 steps on 2 ranks that nobody interrupted."""
    cwd = tmp_path_factory.mktemp("whole")
    complete(2, *FLAGS, "--steps", "20", "--keep", "3", "--out", "whole", cwd=cwd)
    return cwd / "whole"


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """The same run, to be spoiled."""
    shutil.copytree(whole, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


@pytest.mark.full
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (truncate, "weights.pt: File is not a zip file"),
        (flip_a_bit, r"weights.pt: \S+/data/\d+ is not what was written"),
        (Path.unlink, "weights.pt: No such file or directory"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_found(
    copy: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(copy / LAST / "weights.pt")
    found, (complaint,) = saving.find(Config(resume="auto"), copy)
    assert found == copy / "step-00000018"
    assert re.fullmatch(rf"{copy}/{LAST} is damaged: {said}", complaint)
    with pytest.raises(RefusedError, match=rf"--resume: {copy}/{LAST} is damaged: {said}; use "):
        saving.find(Config(resume=str(copy / LAST)), copy.parent)


@pytest.mark.full
def test_a_checkpoint_of_an_older_version_is_refused(copy: Path) -> None:
    file = copy / LAST / "training.pt"
    saved: Any = torch.load(file, weights_only=True)
    del saved["samples"]
    torch.save(saved, file)
    ended = run(2, *FLAGS, "--resume", "auto", "--out", "copy", cwd=copy.parent)
    assert_refused(ended, f"copy/{LAST} has no 'samples', as checkpoints of an older version; beg")


@pytest.mark.full
def test_a_flipped_bit_anywhere_is_named_or_harmless(tmp_path: Path) -> None:
    expected = {"weight": torch.arange(3.0)}
    checkpoint.write(tmp_path, 1, expected, {"seen": 1}, check=True)
    path = tmp_path / "step-00000001"
    whole = (path / "weights.pt").read_bytes()
    for place in range(0, len(whole), 3):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << place % 8
        (path / "weights.pt").write_bytes(spoilt)
        damage = checkpoint.damage(path)
        weights = {} if damage else checkpoint.load(path)[0]
        assert damage.startswith("weights.pt: ") or torch.equal(
            *(of["weight"] for of in (weights, expected))
        )


@pytest.mark.full
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(copy: Path, whole: Path) -> None:
    flip_a_bit(copy / LAST / "training.pt")
    first, *_ = complete(2, *FLAGS, "--steps", "20", "--out", "copy", cwd=copy.parent)
    assert re.search(rf"copy/{LAST} is damaged: .*; using copy/step-00000018\n", first.out)
    assert history(copy) == history(whole)


@pytest.mark.full
def test_what_is_saved_below_a_damaged_checkpoint_is_gone_on_from(copy: Path) -> None:
    flip_a_bit(copy / LAST / "training.pt")
    flags = (*FLAGS, "--keep", "1", "--lr", "0.5", "--out", "copy")  # step 19 is not the best
    complete(2, *flags, "--steps", "19", cwd=copy.parent)
    first, _ = complete(2, *flags, "--steps", "21", cwd=copy.parent)
    assert "resumed from step 19; " in first.out


@pytest.mark.full
def test_a_run_without_a_whole_checkpoint_is_not_begun_again_unasked(copy: Path) -> None:
    for file in copy.glob("step-*/training.pt"):
        truncate(file)
    (ended,) = run(0, *FLAGS, "--out", "copy", cwd=copy.parent)
    assert ended.status == 2
    assert ended.err.count(" is damaged: training.pt: ") == 3
    assert ended.err.endswith("use --overwrite without --resume, or the path of another run\n")


@pytest.mark.full
def test_a_resumed_run_draws_the_numbers_that_the_whole_one_drew(tmp_path: Path) -> None:
    """Of all generators, in the loss of the model."""
    (tmp_path / "noisy.py").write_text(NOISY)
    flags = (*FLAGS, "--task", "noisy.py:Noisy", "--keep", "9", "--steps", "8")
    complete(2, *flags, "--out", "whole", cwd=tmp_path)
    complete(2, *flags, "--out", "new", "--resume", "whole/step-00000003", cwd=tmp_path)
    after = [line for line in history(tmp_path / "whole") if line["step"] > 3]
    assert history(tmp_path / "new") == after


@pytest.mark.full
def test_old_checkpoints_go_and_the_best_stays(tmp_path: Path) -> None:
    (tmp_path / "past.py").write_text(text_of("past"))
    flags = ("--task", "past.py:Past", "--lr", "0.1", "--warmup", "0", "--out", "here")
    often = ("--steps", "12", "--eval-every", "1", "--save-every", "2", "--keep", "2")
    complete(0, "--device", "cpu", *flags, *often, cwd=tmp_path)
    losses = metrics(tmp_path / "here", "validation_loss")
    best = losses.index(min(losses)) + 1
    assert 2 < best < 9
    names = sorted(path.name for path in (tmp_path / "here").glob("step-*"))
    assert names == [f"step-{best:08}", "step-00000010", "step-00000012"]
    assert (tmp_path / "here" / "best").resolve().name == f"step-{best:08}"
