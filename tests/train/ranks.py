"""Start N ranks of the training loop as a launcher would, with nothing but their environment."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.train import warm

ROOT = Path(__file__).resolve().parents[2]
ENTRY = ROOT / "spawnlaunch" / "train" / "__main__.py"
# A text that every Python has, and less of it than is trained on by default.
TEXT = argparse.__file__
ON_TEXT = ("--device", "cpu", "--text", TEXT)
TINY_MODEL = (*ON_TEXT, "--layers", "1", "--width", "32")
SMALL = (*TINY_MODEL, "--eval-every", "0", "--save-every", "0")
LAUNCHER = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PYTHONPATH"}
LAUNCHER |= {"MASTER_ADDR", "MASTER_PORT"}


def text_of(name: str) -> str:
    """The text of a file of tests/train/tasks, which a test writes to a directory of its own."""
    return Path(__file__).with_name("tasks").joinpath(f"{name}.py").read_text()


class Ended(NamedTuple):
    status: int
    out: str
    err: str


def environment(rank: int, size: int, port: int, **extra: str) -> dict[str, str]:
    """What a launcher sets; a world of 0 is a process that nobody launched."""
    values = {name: value for name, value in os.environ.items() if name not in LAUNCHER}
    values["OMP_NUM_THREADS"] = "1"
    if size:
        values.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
        values.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    return values | extra


Rank = subprocess.Popen[str] | warm.Worker


def start(
    size: int, *flags: str, cwd: Path, program: Path = ENTRY, cold: bool = False, **extra: str
) -> list[Rank]:
    """The started ranks, each with pipes for stdout and stderr.

    The loop is forked from a process that has torch, another program is started by itself, and so
    is the loop if it is to be ``cold``.
    """
    port = free_port()
    environs = [environment(rank, size, port, **extra) for rank in range(max(size, 1))]
    if program == ENTRY and not cold:
        return [warm.start(str(program), flags, str(cwd), environ) for environ in environs]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-u", str(program), *flags]
    return [subprocess.Popen(command, cwd=cwd, env=environ, **pipes) for environ in environs]


def finish(ranks: list[Rank]) -> list[Ended]:
    """How every rank ended; what a rank prints here is far less than a pipe holds."""
    try:
        said = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
    except subprocess.TimeoutExpired:
        raise AssertionError("\n".join(map(_doing, ranks))) from None
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [Ended(rank.returncode, *texts) for rank, texts in zip(ranks, said, strict=True)]


def _doing(rank: Rank) -> str:
    """Where a rank is that should have ended, or how it did."""
    command = [Path(sys.executable).parent / "py-spy", "dump", "--pid", str(rank.pid)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{rank.pid}: {rank.poll()}\n{asked.stdout}{asked.stderr}"


def until(rank: Rank, start_of_line: str) -> None:
    """Read what a rank prints until a line begins so."""
    for line in rank.stdout:
        if line.startswith(start_of_line):
            return
    raise AssertionError(f"no line begins with {start_of_line!r}: {finish([rank])}")


def history(out: Path) -> list[dict[str, Any]]:
    """What a run computed, exactly; its times are left out."""
    names = ("step", "samples", "loss", "lr", "validation_loss")
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [{name: line[name] for name in names if name in line} for line in lines]


def metrics(out: Path, name: str) -> list[Any]:
    """The values of one name in a run's metrics, in the order of its steps."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line[name] for line in lines if name in line]


def weights(out: Path, step: int) -> dict[str, Any]:
    """The weights that a run has saved after a step."""
    import torch  # not before it is needed: all tests are collected first

    file = out / f"step-{step:08}" / "weights.pt"
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def assert_refused(ended: list[Ended], said: str, status: int = 2) -> None:
    """Every rank has this status, and rank 0 alone says why, in one line that begins so."""
    assert [one.status for one in ended] == [status] * len(ended), ended
    assert ended[0].err.startswith(f"train: error: {said}"), ended[0].err
    assert [one.err.count("\n") for one in ended] == [1] + [0] * (len(ended) - 1), ended


def run(
    size: int, *flags: str, cwd: Path, program: Path = ENTRY, cold: bool = False, **extra: str
) -> list[Ended]:
    return finish(start(size, *flags, cwd=cwd, program=program, cold=cold, **extra))


def complete(size: int, *flags: str, cwd: Path, program: Path = ENTRY, **extra: str) -> list[Ended]:
    """Run the ranks and insist that each one ends well."""
    ended = run(size, *flags, cwd=cwd, program=program, **extra)
    assert [one.status for one in ended] == [0] * len(ended), ended
    return ended
