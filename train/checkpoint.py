"""A checkpoint is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch


def save(path: Path, state: dict[str, Any]) -> None:
    """Write ``state`` so that ``path`` never names half a file, even if the machine stops.

    ``state`` holds tensors, numbers, strings and containers of them, and nothing else:
    ``torch.load(path, weights_only=True)`` reads it back.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            # The bytes before the name: after a power cut a renamed file could else be empty.
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
