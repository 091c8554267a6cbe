"""Read images and recordings as they are shown and heard, or name the file that cannot be read.

For tasks of your own: docs/examples/images.py and docs/examples/speech.py use it.
"""

from __future__ import annotations

import importlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RefusedError, needed

# Formats of which Pillow returns 16 bits in its mode of 32: before Pillow 11.3, and of PGM.
IN_16_BITS = (("I", "PNG"), ("I", "PPM"))


def labelled_images(root: Path) -> list[tuple[str, str]]:
    """Return each image below a directory, once, and its class: the directory directly below.

    Links are followed, hidden names are left out, and the head of each image is read. Raises
    RefusedError where there are no images, or where one cannot be used.
    """
    pillow = needed("PIL.Image", "hf")
    kinds = pillow.registered_extensions()
    labelled: list[tuple[str, str]] = []
    for folder in sorted(root.iterdir() if root.is_dir() else ()):
        images: dict[str, str] = {}
        seen: set[str] = set()
        for at, below, names in os.walk(folder, followlinks=True):
            new = {name: os.path.realpath(os.path.join(at, name)) for name in sorted(below)}
            below[:] = [n for n in new if n[0] != "." and new[n] not in seen]
            seen.update(new.values(), [os.path.realpath(at)])
            files = (Path(at, n) for n in sorted(names) if n[0] != "." and folder.name[0] != ".")
            images |= {str(f.resolve()): folder.name for f in files if f.suffix.lower() in kinds}
        labelled += images.items()
    if not labelled:
        raise RefusedError(
            f"--data: {root} has no images in directories named after their classes, such as "
            f"{root / 'cat' / '1.jpg'}; use the path of one that has"
        )
    with ThreadPoolExecutor() as pool:  # most of the time waits for the disk
        for _ in pool.map(_refuse_unreadable, (file for file, _ in labelled)):
            pass
    return labelled


def _refuse_unreadable(file: str) -> None:
    try:
        with importlib.import_module("PIL.Image").open(file) as image:
            _has_16_bits(image)
    except Exception as error:  # a broken file raises whatever its decoder meets
        raise RefusedError(f"--data: cannot read the image {file}: {error}") from error


def _has_16_bits(image: Any) -> bool:
    """Return whether an image, which was just opened, has 16 bits of grey per pixel.

    Raises ValueError for 32 bits per pixel, because no one value of these is white.
    """
    if image.mode.startswith("I;16") or (image.mode, image.format) in IN_16_BITS:
        return True
    if image.mode in ("I", "F"):
        raise ValueError("it has 32 bits per pixel, and none is known to be white; save 8 or 16")
    return False


def read_image(file: str) -> Any:
    """Return a Pillow image in 8-bit RGB, turned as its EXIF says."""
    pillow = importlib.import_module("PIL.Image")
    try:
        with pillow.open(file) as image:
            has_16_bits = _has_16_bits(image)
            image = importlib.import_module("PIL.ImageOps").exif_transpose(image)
            if has_16_bits:  # convert("RGB") would make all values above 255 white
                image = pillow.fromarray((np.asarray(image) // 257).astype(np.uint8))
            return image.convert("RGB")
    except Exception as error:  # a broken file raises whatever its decoder meets
        raise RuntimeError(f"cannot read the image {file}: {error}") from error


def read_sound(file: str, rate: int) -> Any:
    """Return the mean of the channels of a recording of this sampling rate, as float32.

    Raises RefusedError where the file is not a recording, or has another rate.
    """
    try:
        sound, has = needed("soundfile", "hf").read(file, dtype="float32", always_2d=True)
    except (OSError, RuntimeError) as error:
        raise RefusedError(f"cannot read the recording {file}: {error}") from error
    if has != rate:
        raise RefusedError(
            f"{file} has {has:,} samples per second, and the model takes {rate:,}; run ffmpeg -i "
            f"{file} -ar {rate} OUT.wav for each"
        )
    return sound.mean(axis=1)
