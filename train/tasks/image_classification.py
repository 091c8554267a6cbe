"""Train or fine-tune a Hugging Face model to tell which class an image is of.

The images are in a directory with one directory for each class, as ``data/cat/1.jpg``; or those
directories are below ``train``, and below ``validation`` and ``test`` where there are such splits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from ..config import flag, switch, whole, word
from ..errors import RefusedError
from . import rows, scores
from .huggingface import FineTuning

# Of ImageNet, on which most models without a preprocessor_config.json were trained.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHORTER_SIDE = 256 / 224  # of the part that is used, where no part is drawn
LEAST_AREA, RATIOS = 0.25, (3 / 4, 4 / 3)  # of the part that is drawn

# Formats of which Pillow returns 16 bits in its mode of 32: before Pillow 11.3, and of PGM.
IN_16_BITS = (("I", "PNG"), ("I", "PPM"))

Labelled = list[tuple[str, int]]  # files, and the numbers of their classes


class Images:
    """Pairs (pixels of shape (3, size, size), class): parts that are ``drawn``, or the middle."""

    def __init__(self, files: Labelled, size: int, drawn: bool, mean: Any, deviation: Any) -> None:
        self.files = files
        self.size = size
        self.drawn = drawn
        self.mean, self.deviation = (torch.tensor(x).view(3, 1, 1) for x in (mean, deviation))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file, label = self.files[index]
        try:
            with Image.open(file) as image:
                part = self._part(as_shown(image))
        except Exception as error:  # a broken file raises whatever its decoder meets
            raise RuntimeError(f"cannot read the image {file}: {error}") from error
        pixels = torch.from_numpy(np.array(part)).permute(2, 0, 1) / 255.0
        if self.drawn and torch.rand(()) < 0.5:
            pixels = pixels.flip(2)
        return (pixels - self.mean) / self.deviation, label

    def _part(self, image: Image.Image) -> Image.Image:
        width, height = image.size
        if self.drawn:
            area = width * height * float(torch.empty(()).uniform_(LEAST_AREA, 1))
            ratio = float(torch.empty(()).uniform_(*RATIOS))
            wide, high = min(width, (area * ratio) ** 0.5), min(height, (area / ratio) ** 0.5)
            left, top = (torch.rand(2) * torch.tensor([width - wide, height - high])).tolist()
        else:
            wide = high = min(width, height) / SHORTER_SIDE
            left, top = (width - wide) / 2, (height - high) / 2
        box = (left, top, left + wide, top + high)
        return image.resize((self.size, self.size), Image.Resampling.BILINEAR, box)


def has_16_bits(image: Image.Image) -> bool:
    """Whether an image, which was just opened, has 16 bits of grey per pixel.

    Raises ValueError for 32 bits per pixel, because no one value of these is white.
    """
    if image.mode.startswith("I;16") or (image.mode, image.format) in IN_16_BITS:
        return True
    if image.mode in ("I", "F"):
        raise ValueError("it has 32 bits per pixel, and none is known to be white; save 8 or 16")
    return False


def as_shown(image: Image.Image) -> Image.Image:
    """An image in 8-bit RGB, turned as its EXIF says."""
    is_deep = has_16_bits(image)
    image = ImageOps.exif_transpose(image)
    if is_deep:  # convert("RGB") would make all values above 255 white
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    return image.convert("RGB")


def refuse_unreadable(file: str) -> None:
    """Raises RefusedError where the head of a file is not that of a usable image."""
    try:
        with Image.open(file) as image:
            has_16_bits(image)
    except Exception as error:  # a broken file raises whatever its decoder meets
        raise RefusedError(f"--data: cannot read the image {file}: {error}") from error


@dataclass
class ImageClassification(scores.Classifier, FineTuning):
    """A model for images; it trains on parts that are drawn, and on their mirror images."""

    model_name: str = flag("resnet", word, "MODEL", "local directory, or a type (%(default)s)")
    size: int = flag(224, whole(8), "N", "pixels of a side, that the model looks at (%(default)s)")
    whole_images: bool = switch("train on the middle of each image, and draw nothing")

    name = "image_classification"
    counted = "images"
    defaults: ClassVar = {"lr": 5e-4, "weight_decay": 0.05, "batch_size": 32}
    _kind = "AutoModelForImageClassification"

    def prepare(self, directory: Path) -> None:
        """List the images, of which there may be millions, and read the head of each."""
        splits, held_out = find_splits(self.data, self.validation, self.test)
        labels = rows.order_of(label for _, label in splits["train"])
        for split, images in splits.items():
            if unknown := {label for _, label in images}.difference(labels):
                raise RefusedError(f"--data: the class {min(unknown)!r} is in {split} only")
        with ThreadPoolExecutor() as pool:  # most of the time waits for the disk
            for _ in pool.map(refuse_unreadable, (f for of in splits.values() for f, _ in of)):
                pass
        rows.begin_preparing(directory)
        facts = {"held_out": held_out, "labels": labels, "files": splits}
        rows.finish_preparing(directory, {}, facts, Path(self.data))

    def prepared(self, directory: Path) -> None:
        self.facts = rows.read_facts(directory)
        labels = self.facts["labels"]
        numbers = dict(zip(labels, self.name_classes(labels), strict=True))
        for split, images in self.facts.pop("files").items():
            self.splits[split] = [(file, numbers[label]) for file, label in images]

    def amount(self, split: str) -> str:
        return f"{len(self.splits[split]):,} images"

    def dataset(self, split: str) -> Images:
        drawn = split == "train" and not self.whole_images
        return Images(super().dataset(split), self.size, drawn, *self._colours())

    def _colours(self) -> tuple[Sequence[float], Sequence[float]]:
        """The mean and the deviation of each colour, as the model's processor has them."""
        file = Path(self.model_name) / "preprocessor_config.json"
        saved = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return saved.get("image_mean", MEAN), saved.get("image_std", DEVIATION)

    def _names(self) -> list[str]:
        return self.labels

    def _logits(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        pixels, truth = batch
        return model(pixel_values=pixels).logits.float(), truth

    def export(self, model: Any, directory: Path) -> None:
        """Write the model in the form that from_pretrained reads."""
        super().export(model, directory)
        mean, deviation = self._colours()
        values = {"image_mean": mean, "image_std": deviation, "size": {"shortest_edge": self.size}}
        file = directory / "model" / "preprocessor_config.json"
        file.write_text(json.dumps(values), encoding="utf-8")


def find_splits(
    data: str, validation: str | None, test: str | None
) -> tuple[dict[str, list[tuple[str, str]]], str]:
    """The files and classes of each split, in the order of their names; and the held-out part.

    Raises RefusedError where a directory has no images.
    """
    root = Path(data)
    is_parted = (root / "train").is_dir()

    def inside(*names: str) -> Path | None:
        return next((root / n for n in names if is_parted and (root / n).is_dir()), None)

    held = Path(validation) if validation else inside(*rows.VALIDATION_NAMES, "val")
    tested = Path(test) if test else inside("test")
    if held is None and test is None:
        held, tested = tested, None
    places = {"train": root / "train" if is_parted else root, "validation": held, "test": tested}
    splits = {split: _labelled(place) for split, place in places.items() if place is not None}
    held_out = f"of {held}"
    if held is None:
        held_out, images = f"one image in {rows.HELD_OUT}", splits["train"]
        splits["validation"] = images[:: rows.HELD_OUT]
        splits["train"] = [one for i, one in enumerate(images) if i % rows.HELD_OUT]
    for split, images in splits.items():
        if not images:
            raise RefusedError(f"--data: {data} leaves no images for {split}; give it more")
    return splits, held_out


def _labelled(root: Path) -> list[tuple[str, str]]:
    """Each image below a directory, once, and its class; links are followed."""
    kinds = Image.registered_extensions()
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
    return labelled
