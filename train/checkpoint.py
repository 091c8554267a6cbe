"""Write, read and remove checkpoints: directories that exist whole or not at all.

    step-00000350/weights.pt      the model's state_dict: torch.load(..., weights_only=True)
                  training.pt     everything else that a run needs to go on

It is written aside, as step-00000350.part, flushed to the disk and renamed. So a directory without
an ending was a whole checkpoint when it got its name.
"""

from __future__ import annotations

import copy
import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import RefusedError, StoppedError

WEIGHTS = "weights.pt"
TRAINING = "training.pt"
BEST = "best"
PART = ".part"  # being written or removed
OLD = ".old"  # being replaced


def path_of(out: Path, step: int) -> Path:
    """The checkpoint of ``step`` in the run's directory."""
    return out / f"step-{step:08}"


def step_of(path: Path) -> int:
    """The step of a checkpoint, from its name; -1 if the name is not that of a checkpoint."""
    match = re.fullmatch(r"step-(\d{8,})", path.name)
    return int(match[1]) if match else -1


def all_in(out: Path) -> list[Path]:
    """The checkpoints of a run, newest first, whole or damaged."""
    paths = [path for path in out.iterdir() if path.is_dir() and step_of(path) >= 0]
    return sorted(paths, key=step_of, reverse=True)


def copied(value: Any) -> Any:
    """The value with a copy on the CPU of every tensor in it."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        result = copy.copy(value)  # with the attribute of a state_dict: versions of its modules
        for key, item in value.items():
            result[key] = copied(item)
        return result
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item) for item in value)
    return value


def write(
    out: Path, step: int, weights: Mapping[str, Any], training: Mapping[str, Any], check: bool
) -> None:
    """Write a checkpoint so that its name never names half of one, even if the machine stops.

    Both mappings hold tensors, numbers, strings and containers of them, and nothing else; with
    ``check`` it is read back, and StoppedError raised if it cannot be.
    """
    path = path_of(out, step)
    part = path.with_name(path.name + PART)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for name, state in ((WEIGHTS, weights), (TRAINING, training)):
        with (part / name).open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # torch's own, in place of the error of the file
                raise (error.__context__ or error) from None
            file.flush()
            os.fsync(file.fileno())
        if check:
            _read_back(part / name)
    # The bytes before the names: after a power cut a renamed directory could else be empty.
    sync_directory(part)
    # One of the same step may be there: a damaged one, or one that was saved before a validation.
    old = path.with_name(path.name + OLD)
    if path.exists():
        path.rename(old)
    part.rename(path)
    sync_directory(out)
    shutil.rmtree(old, ignore_errors=True)


def _read_back(file: Path) -> None:
    try:
        torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        match = re.search(r"GLOBAL (.+?) was not", str(error))
        raise StoppedError(
            f"{file.name} of the first checkpoint cannot be read back, for "
            f"{match[1] if match else str(error).splitlines()[0]}; keep tensors, numbers, texts "
            "and containers of them in the state_dict of the model, the optimizer and the task"
        ) from error


def sync_directory(path: Path) -> None:
    """Flush the names in a directory to the disk; some network file systems cannot do so."""
    with suppress(OSError):
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def damage(path: Path) -> str:
    """Return what is wrong with a checkpoint, in a few words; "" if it is whole.

    What torch.save writes is a ZIP file, which has a checksum of each tensor; torch is stricter
    than zipfile with its headers.
    """
    for name in (WEIGHTS, TRAINING):
        try:
            with zipfile.ZipFile(path / name) as file:
                if changed := file.testzip():
                    return f"{name}: {changed} is not what was written"
            torch.load(path / name, map_location="cpu", weights_only=True, mmap=True)
        except OSError as error:
            return f"{name}: {error.strerror or error}"
        except Exception as error:  # of many kinds, depending on the wrong bytes
            return f"{name}: {(str(error) or type(error).__name__).splitlines()[0]}"
    return ""


def newest_whole(out: Path) -> tuple[Path | None, list[str]]:
    """Return the newest whole checkpoint of a run, and a line on each damaged one that is newer.

    Raises RefusedError when there are checkpoints and none of them is whole.
    """
    complaints: list[str] = []
    for path in all_in(out):
        if not (wrong := damage(path)):
            return path, complaints
        complaints.append(f"{path} is damaged: {wrong}")
    if complaints:
        raise RefusedError(
            "; ".join(complaints) + "; there is no other: use --overwrite without --resume, or the "
            "path of another run"
        )
    return None, []


def meant_by(flag: str, place: str) -> tuple[Path, list[str]]:
    """Return the checkpoint that a path means, and a line on each newer one that is damaged.

    It is that of a checkpoint, of ``best`` in a run, or of a run, which means its newest one.
    Raises RefusedError where there is none.
    """
    path = Path(place)
    if path.name == BEST and path.is_file():  # a file system without links: the file has the name
        path = path.with_name(path.read_text(encoding="utf-8", errors="replace").strip() or ".")
    if step_of(path.resolve()) >= 0:
        if wrong := damage(path):
            raise RefusedError(f"{flag}: {path} is damaged: {wrong}; use the path of another")
        return path, []
    newest, complaints = newest_whole(path) if path.is_dir() else (None, [])
    if newest is None:
        raise RefusedError(f"{flag}: there is no checkpoint in {path}; use the path of one")
    return newest, complaints


def load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load the weights and the rest, mapped, so that a node reads them once for all its ranks."""
    weights, training = (
        torch.load(path / name, map_location="cpu", weights_only=True, mmap=True)
        for name in (WEIGHTS, TRAINING)
    )
    return weights, training


def weights_of(place: str) -> Any:
    """Load weights on the CPU, from a file, a checkpoint, or the newest checkpoint of a run.

    Raises RefusedError where there is no checkpoint, or torch cannot read the file.
    """
    file = Path(place)
    if file.is_dir() or file.name == BEST:
        is_whole = (file / WEIGHTS).exists()
        file = (file if is_whole else meant_by("--init", place)[0]) / WEIGHTS
    try:
        mapped = zipfile.is_zipfile(file)  # as torch.save has it since 1.6
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    except OSError as error:
        raise RefusedError(f"--init: cannot read {file}: {error.strerror}") from error
    except Exception as error:  # of many kinds, depending on the wrong bytes
        raise RefusedError(
            f"--init: {file} is not a file of weights that torch.load(weights_only=True) reads; "
            "use the path of another"
        ) from error


def prune(out: Path, keep: int, best: int, newest: int) -> None:
    """Remove all but the ``keep`` newest checkpoints and the best, and name the best.

    Those above the ``newest`` stay: they are damaged, or the run would have gone on from them.
    """
    # First, for the link must not lead to a checkpoint that is removed.
    if path_of(out, best).exists():
        link = out / (BEST + PART)
        link.unlink(missing_ok=True)
        try:
            link.symlink_to(path_of(out, best).name)
        except OSError:  # a file system without links: a file has the name
            link.write_text(path_of(out, best).name, encoding="utf-8")
        link.replace(out / BEST)
    else:
        (out / BEST).unlink(missing_ok=True)
    for path in [path for path in all_in(out) if step_of(path) <= newest][keep:]:
        if step_of(path) != best:
            _remove(path)


def remove_all(out: Path) -> None:
    """Remove every checkpoint, and the parts of checkpoints that a killed run left."""
    clean_up(out)
    (out / BEST).unlink(missing_ok=True)
    for path in all_in(out):
        _remove(path)


def clean_up(out: Path) -> None:
    """Clean up after a killed run: remove parts, and restore a checkpoint set aside as .old."""
    for old in out.glob("step-*" + OLD):
        path = old.with_name(old.name.removesuffix(OLD))
        if path.exists():
            shutil.rmtree(old)
        else:
            old.rename(path)
    for path in out.glob("step-*" + PART):
        shutil.rmtree(path)
    (out / (BEST + PART)).unlink(missing_ok=True)


def _remove(path: Path) -> None:
    # Renamed first: half of a removed checkpoint should not pass for a damaged one.
    part = path.with_name(path.name + PART)
    shutil.rmtree(part, ignore_errors=True)
    path.rename(part)
    shutil.rmtree(part)
