"""What a checkpoint keeps, what is told of a resume, and whose the directory is."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.late import Late
from tests.train.ranks import (
    assert_refused,
    complete,
    finish,
    history,
    run,
    start,
    text_of,
    until,
    weights,
)

torch = Late("torch")
pytestmark = pytest.mark.full

TASK = text_of("kept")
LINE = (
    *("--device", "cpu", "--task", "task.py:Line", "--global-batch", "6", "--log-every", "1"),
    *("--eval-every", "0", "--save-every", "2"),
)
LONG = ("--steps", "1000000", "--save-every", "0")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps with one rank."""
    cwd = tmp_path_factory.mktemp("trained")
    (cwd / "task.py").write_text(TASK)
    complete(1, *LINE, "--steps", "4", "--out", "here", cwd=cwd)
    return cwd


@pytest.fixture
def cwd(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, to go on from."""
    shutil.copytree(trained, tmp_path / "cwd", symlinks=True)
    return tmp_path / "cwd"


def test_a_state_dict_is_kept_with_the_versions_of_its_modules(cwd: Path) -> None:
    saved: Any = torch.load(cwd / "here" / "step-00000004" / "weights.pt", weights_only=True)
    assert saved._metadata["1"] == {"version": 7}
    assert saved["1._extra_state"] == {"torch": 1}


def test_what_cannot_be_read_back_is_found_at_the_first_save(cwd: Path) -> None:
    ranks = run(2, *LINE, "--steps", "40", "--out", "new", cwd=cwd, AWRY="own")
    assert_refused(ranks, "weights.pt of the first checkpoint cannot be read back, for ", 1)
    assert [line["step"] for line in history(cwd / "new")] == [1, 2]


def test_two_runs_do_not_write_to_one_directory(cwd: Path) -> None:
    flags = (*LINE, *LONG, "--out", "here", "--resume", "auto")
    (first,) = start(0, *flags, cwd=cwd)
    until(first, "step")
    before = (cwd / "here" / "config.toml").read_bytes()
    (second,) = run(0, *flags, "--lr", "0.5", cwd=cwd)
    assert second.status == 2
    assert second.err.startswith("train: error: another run writes")
    assert second.err.endswith("or use another --out\n")
    assert (cwd / "here" / "config.toml").read_bytes() == before
    first.kill()
    finish([first])
    complete(0, *LINE, "--steps", "6", "--out", "here", "--resume", "auto", cwd=cwd)


# What is typed, for a run to --out here, and what is said of it.
REFUSED = [
    ((), "here already holds a run; use another --out, --resume auto to go on with it, or --ov"),
    (("--resume", "auto", "--seed", "4"), "here/step-00000004 is of another run: its seed is 0 an"),
    (("--resume", "auto", "--width", "5"), "here/step-00000004 is of another model: "),
    (("--overwrite", "--init", "here"), "--overwrite would remove what --init begins from, here; "),
    (("--overwrite", "--resume", "none"), "--resume: there is no checkpoint in none"),
    (("--overwrite", "--warmup", "99"), "--warmup is 99, and the run has"),
    (("--overwrite", "--resume", "auto"), "--overwrite would remove what --resume begins from, he"),
]


@pytest.mark.parametrize(("flags", "said"), REFUSED, ids=[" ".join(row[0]) for row in REFUSED])
def test_a_run_stays_as_it_is_where_another_is_refused(
    cwd: Path, flags: tuple[str, ...], said: str
) -> None:
    def files() -> dict[Path, bytes]:
        found = [path for path in (cwd / "here").rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in found if path.name != "lock"}

    before = files()
    ended = run(1, *LINE, "--steps", "4", "--out", "here", *flags, cwd=cwd)
    assert_refused(ended, said)
    assert files() == before


def test_what_has_changed_since_is_said(cwd: Path) -> None:
    flags = (*LINE, "--steps", "6", "--out", "here", "--resume", "auto", "--lr", "3e-4")
    first, *_ = complete(
        3, *flags, "--global-batch", "9", "--loader-workers", "0", "--keep", "3", cwd=cwd
    )
    said = next(line for line in first.out.splitlines() if line.startswith("resumed"))
    assert said == (
        "resumed from step 4; changed: --steps 4 -> 6, --global-batch 6 -> 9, --lr 0.004 -> "
        "0.0003, --loader-workers None -> 0, --keep 2 -> 3, 1 -> 3 ranks, 9 samples per "
        "step, was 6"
    )


def test_a_run_from_a_path_can_be_started_again(cwd: Path) -> None:
    flags = (*LINE, "--steps", "8", "--out", "new", "--resume", "here/step-00000002")
    (first,) = start(1, *flags, "--steps", "1000000", cwd=cwd)
    until(first, "step      11/")
    first.kill()
    finish([first])
    saved = sorted(path.name for path in (cwd / "new").glob("step-*[0-9]"))
    (ended,) = complete(1, *flags, "--steps", "40", cwd=cwd)
    assert f"resumed from step {int(saved[-1][5:])}; changed: --steps 1000000 -> 40" in ended.out


def test_broken_lines_of_metrics_are_mended(cwd: Path) -> None:
    lines = cwd / "here" / "metrics.jsonl"
    whole = lines.read_bytes()
    lines.write_bytes(whole + b'{"step": 4, "lo\xff\0\n{"step": 5')
    complete(1, *LINE, "--steps", "5", "--out", "here", "--resume", "auto", cwd=cwd)
    told = [json.loads(line) for line in lines.read_bytes().splitlines()]
    assert [line["step"] for line in told] == [1, 2, 3, 4, 4, 5, 5]


@pytest.mark.parametrize(
    ("path", "world"),
    [("here", 1), ("here/step-00000004/weights.pt", 2), ("here/best", 3)],
)
def test_a_run_can_begin_with_the_weights_of_another(cwd: Path, path: str, world: int) -> None:
    flags = (*LINE, "--lr", "1e-30", "--weight-decay", "0", "--seed", "9", "--steps", "1")
    ended, *_ = complete(world, *flags, "--init", path, "--out", "new", cwd=cwd)
    assert "resumed" not in ended.out
    old, new = weights(cwd / "here", 4), weights(cwd / "new", 1)
    assert all(torch.equal(old[name], new[name]) for name in ("0.weight", "2.weight", "2.bias"))
