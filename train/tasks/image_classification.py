"""Train or fine-tune a Hugging Face model to tell which class an image is of.

The images are in a directory that has one for each class, as ``data/cat/1.jpg``; or in one that has
those below ``train``, and below ``validation`` and ``test`` where there are such splits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import transformers
from PIL import Image, UnidentifiedImageError
from torch import Tensor, nn

from ..config import flag, path, switch, whole, word
from ..errors import RefusedError
from ..task import split_of
from . import rows, scores
from .huggingface import config_of, count_parameters, has_weights, origin_of

KIND = "AutoModelForImageClassification"
FILES = "images.json"
# Of ImageNet, which most models that a processor says nothing of were trained with.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHORTER_SIDE = 256 / 224  # of the part that is looked at, where nothing is drawn
LEAST_AREA, RATIOS = 0.25, (3 / 4, 4 / 3)  # of the part that is drawn

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
                part = self._part(image.convert("RGB"))
        except (OSError, UnidentifiedImageError) as error:
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


@dataclass
class ImageClassification(scores.Classifier):
    """A model for images; it trains on parts that are drawn, and on their mirror images."""

    data: str = field(
        metadata={"type": path, "metavar": "DIR", "help": "a directory of each class, or of train"}
    )
    model_name: str = flag("resnet", word, "MODEL", "local directory, or a type (%(default)s)")
    model_config: str = flag("{}", word, "JSON", "changes of the model's configuration")
    size: int = flag(224, whole(8), "N", "pixels of a side, that the model looks at (%(default)s)")
    whole_images: bool = switch("train on the middle of each image, and draw nothing")
    validation: str | None = flag(None, path, "DIR", "held-out images (every tenth)")
    test: str | None = flag(None, path, "DIR", "images for --eval-splits test")

    name = "image_classification"
    counted = "images"
    defaults: ClassVar = {"lr": 5e-4, "weight_decay": 0.05, "batch_size": 32}

    def __post_init__(self) -> None:
        self.pretrained = has_weights(self.model_name)
        self.labels: list[str] = []
        self.splits: dict[str, Labelled] = {}

    def prepare(self, directory: Path) -> None:
        """List the images, of which there may be millions."""
        splits, held_out = find_splits(self.data, self.validation, self.test)
        labels = sorted({label for _, label in splits["train"]})
        for split, images in splits.items():
            if unknown := {label for _, label in images}.difference(labels):
                raise RefusedError(f"--data: the class {min(unknown)!r} is in {split} only")
        numbers = {label: number for number, label in enumerate(labels)}
        listed = {name: [(f, numbers[label]) for f, label in splits[name]] for name in splits}
        (directory / rows.FOLDER).mkdir(exist_ok=True)
        text = json.dumps({"labels": labels, "held_out": held_out, "splits": listed})
        (directory / rows.FOLDER / FILES).write_text(text, encoding="utf-8")

    def prepared(self, directory: Path) -> None:
        found = json.loads((directory / rows.FOLDER / FILES).read_text(encoding="utf-8"))
        self.labels, self.splits = found["labels"], found["splits"]
        self.held_out = found["held_out"]
        names = dict(enumerate(self.labels))
        numbers = {name: number for number, name in names.items()}
        made = config_of(self.model_name, self.model_config, {}, id2label=names, label2id=numbers)
        self.config = made
        self.parameters = count_parameters(KIND, made, f"--model-name: {self.model_name}")

    def describe(self) -> str:
        """How much there is in each split, and where images and weights come from."""
        train, validation = (f"{len(self.splits[one]):,}" for one in ("train", "validation"))
        origin = origin_of(self.model_name, self.config, self.parameters)
        held_out = f"{validation} held out ({self.held_out}), {len(self.labels)} classes"
        return f"{self.data}: {train} images to train on, {held_out}; {origin}"

    def model(self) -> Any:
        auto = getattr(transformers, KIND)
        if not self.pretrained:
            return auto.from_config(self.config)
        made = partial(auto.from_pretrained, self.model_name, config=self.config)
        # What tells other classes apart begins anew.
        return made(local_files_only=True, ignore_mismatched_sizes=True)

    def dataset(self, split: str) -> Images:
        drawn = split == "train" and not self.whole_images
        return Images(split_of(self.splits, split), self.size, drawn, *self._colours())

    def _colours(self) -> tuple[Sequence[float], Sequence[float]]:
        """The mean and the deviation of each colour, as the model's processor has them."""
        file = Path(self.model_name) / "preprocessor_config.json"
        said = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return said.get("image_mean", MEAN), said.get("image_std", DEVIATION)

    def _names(self) -> list[str]:
        return self.labels

    def _logits(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        pixels, truth = batch
        return model(pixel_values=pixels).logits.float(), truth

    def export(self, model: Any, directory: Path) -> None:
        """In the form that from_pretrained reads."""
        model.save_pretrained(directory / "model")
        mean, deviation = self._colours()
        said = {"image_mean": mean, "image_std": deviation, "size": {"shortest_edge": self.size}}
        file = directory / "model" / "preprocessor_config.json"
        file.write_text(json.dumps(said), encoding="utf-8")


def find_splits(
    data: str, validation: str | None, test: str | None
) -> tuple[dict[str, list[tuple[str, str]]], str]:
    """Files and classes of each split, in the order of their names; and what is held out.

    Raises RefusedError where a directory has no images.
    """
    root = Path(data)
    parted = (root / "train").is_dir()
    places = {"train": root / "train" if parted else root}
    names = {"validation": (*rows.VALIDATION_NAMES, "val"), "test": ("test",)}
    for split, typed in (("validation", validation), ("test", test)):
        inside = [root / name for name in names[split] if parted and (root / name).is_dir()]
        if split == "test" and typed is None and inside and "validation" not in places:
            split = "validation"
        if found := [Path(typed)] if typed is not None else inside:
            places[split] = found[0]
    splits = {split: _labelled(place) for split, place in places.items()}
    held_out = f"of {places.get('validation')}"
    if "validation" not in splits:
        held_out, images = f"one image in {rows.HELD_OUT}", splits["train"]
        splits["validation"] = images[:: rows.HELD_OUT]
        splits["train"] = [one for i, one in enumerate(images) if i % rows.HELD_OUT]
    for split, images in splits.items():
        if not images:
            raise RefusedError(f"--data: {data} leaves no images for {split}; give it more")
    return splits, held_out


def _labelled(root: Path) -> list[tuple[str, str]]:
    kinds = Image.registered_extensions()
    found = [
        (str(file.resolve()), folder.name)
        for folder in sorted(root.iterdir() if root.is_dir() else ())
        if folder.is_dir()
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in kinds
        and not any(name[0] == "." for name in file.relative_to(root).parts)
    ]
    if not found:
        raise RefusedError(
            f"--data: {root} has no images in directories named after their classes, such as "
            f"{root / 'cat' / '1.jpg'}; type the path of one that has"
        )
    return found
