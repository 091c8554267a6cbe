"""The directory a run is written to: who names it, and whose it is."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import TextIO

from . import checkpoint
from .config import toml
from .errors import RefusedError

METRICS = "metrics.jsonl"
CONFIG = "config.toml"
EVALUATION = "evaluation.json"
LOCK = "lock"
LOCK_WAIT_S = 5.0

_locks: list[TextIO] = []  # what is open is locked


def claim(out: str | None, task: str, overwrite: bool, resume: str) -> Path:
    """Make the directory, lock it for this process, and put an empty metrics file in it.

    Without ``out`` a new one is named after the task and the time. With ``resume`` it may hold a
    run, which then goes on: with "auto" any, with a path one that was begun from that path. Raises
    RefusedError when the directory holds a run and neither ``resume`` nor ``overwrite`` says what
    to do with it, when another process writes to it, or when it cannot be made.
    """
    if resume == "auto" and out is None:
        raise RefusedError("--resume auto goes on with the run in --out; type --out as well")
    try:
        path = Path(out) if out is not None else _new_directory(task)
        path.mkdir(parents=True, exist_ok=True)
        _lock(path)
        checkpoint.clean_up(path)
        if overwrite:
            clear(path)
        elif _holds_run(path) and resume != "auto" and not _began_from(path, resume):
            raise FileExistsError
        (path / METRICS).touch()
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


def _holds_run(path: Path) -> bool:
    """Whether there is anything of a run; one that was refused has left an empty file."""
    lines = path / METRICS
    return bool(checkpoint.all_in(path)) or (lines.exists() and lines.stat().st_size > 0)


def _began_from(path: Path, resume: str) -> bool:
    """Whether the run in the directory was begun with this ``--resume PATH``."""
    config = path / CONFIG
    if resume == "never" or not config.exists():
        return False
    return f"resume = {toml(resume)}" in config.read_text(encoding="utf-8").splitlines()


def _lock(path: Path) -> None:
    """Keep other runs out of the directory until this process ends, however it ends.

    Where the file system has no locks (flock(2): ENOLCK, EOPNOTSUPP) nothing is kept out.
    """
    file = (path / LOCK).open("a+", encoding="utf-8")
    give_up_at = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > give_up_at:
                file.seek(0)
                raise RefusedError(
                    f"another run writes to {path}: {file.read().strip()}; wait for its end, or "
                    "type another --out"
                ) from None
            time.sleep(0.1)  # the run before may be about to end
        except OSError:
            return
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    _locks.append(file)


def clear(path: Path) -> None:
    """Remove what a run wrote, and leave what others put there."""
    checkpoint.remove_all(path)
    for name in (METRICS, CONFIG, EVALUATION):
        (path / name).unlink(missing_ok=True)


def _new_directory(task: str) -> Path:
    stem = f"{task}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, count = Path("runs", stem), 1
    while path.exists():
        count += 1
        path = Path("runs", f"{stem}-{count}")
    return path
