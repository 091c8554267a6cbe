"""The directory a run is written to: who names it, and whose it is."""

from __future__ import annotations

import time
from pathlib import Path

from . import checkpoint
from .errors import RefusedError

METRICS = "metrics.jsonl"
CONFIG = "config.toml"


def claim(out: str | None, task: str, overwrite: bool, resume: bool) -> Path:
    """Make the directory and put an empty metrics file in it, which marks it as taken.

    Without ``out`` a new one is named after the task and the time. With ``resume`` it may hold a
    run, which then goes on. Raises RefusedError when the directory holds a run and neither
    ``resume`` nor ``overwrite`` says what to do with it, or when it cannot be made.
    """
    if resume and out is None:
        raise RefusedError("--resume auto goes on with the run in --out; type --out as well")
    try:
        path = Path(out) if out is not None else _new_directory(task)
        path.mkdir(parents=True, exist_ok=True)
        checkpoint.clean_up(path)
        if overwrite:
            clear(path)
        elif not resume and checkpoint.all_in(path):
            raise FileExistsError
        if not (resume and (path / METRICS).exists()):
            # "x" creates or fails in one system call: of two runs that start at once, one is
            # refused.
            (path / METRICS).open("x").close()
    except FileExistsError:
        if path.is_dir():
            raise RefusedError(
                f"{path} already holds a run; type another --out, --resume auto to go on with it, "
                "or --overwrite to replace it"
            ) from None
        raise RefusedError(f"{path} is not a directory; type another --out") from None
    except OSError as error:
        raise RefusedError(
            f"cannot write to {path}: {error.strerror}; type another --out"
        ) from None
    return path


def clear(path: Path) -> None:
    """Remove what a run wrote, and leave what others put there."""
    checkpoint.remove_all(path)
    for name in (METRICS, CONFIG):
        (path / name).unlink(missing_ok=True)


def _new_directory(task: str) -> Path:
    stem = f"{task}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, count = Path("runs", stem), 1
    while path.exists():
        count += 1
        path = Path("runs", f"{stem}-{count}")
    return path
