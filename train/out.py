"""The directory a run is written to: who names it, and whose it is."""

from __future__ import annotations

import time
from pathlib import Path

from .errors import RefusedError

METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.pt"


def claim(out: str | None, task: str, overwrite: bool) -> Path:
    """Make the directory and put an empty metrics file in it, which marks it as taken.

    Without ``out`` a new one is named after the task and the time. Raises RefusedError when the
    directory holds a run and ``overwrite`` is false, or when it cannot be made.
    """
    try:
        path = Path(out) if out is not None else _new_directory(task)
        path.mkdir(parents=True, exist_ok=True)
        if overwrite:
            for name in (METRICS, CHECKPOINT):
                (path / name).unlink(missing_ok=True)
        elif (path / CHECKPOINT).exists():
            raise FileExistsError
        # "x" creates or fails in one system call: of two runs that start at once, one is refused.
        (path / METRICS).open("x").close()
    except FileExistsError:
        if path.is_dir():
            raise RefusedError(
                f"{path} already holds a run; type another --out, or --overwrite to replace it"
            ) from None
        raise RefusedError(f"{path} is not a directory; type another --out") from None
    except OSError as error:
        raise RefusedError(
            f"cannot write to {path}: {error.strerror}; type another --out"
        ) from None
    return path


def _new_directory(task: str) -> Path:
    stem = f"{task}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, count = Path("runs", stem), 1
    while path.exists():
        count += 1
        path = Path("runs", f"{stem}-{count}")
    return path
