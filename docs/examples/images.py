"""Tell which class an image is of: a Hugging Face model on a directory with one for each class.

python -m spawnlaunch --nproc 2 -- --task docs/examples/images.py:Images --data photos
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from spawnlaunch.train.config import flag, whole, word
from spawnlaunch.train.tasks import media, rows, scores
from spawnlaunch.train.tasks.huggingface import FineTuning

MEAN, DEVIATION = torch.tensor([[[0.485]], [[0.456]], [[0.406]]]), 0.225  # of ImageNet


class Pixels:
    """Pairs (pixels of shape (3, size, size), class); in training of a part drawn at random."""

    def __init__(self, files, size, drawn):
        self.files, self.size, self.drawn = files, size, drawn

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file, label = self.files[index]
        image, bleed, centre = media.read_image(file), 0.06, (0.5, 0.5)
        if self.drawn:
            image = ImageOps.mirror(image) if torch.rand(()) < 0.5 else image
            bleed, *centre = (torch.rand(3) * torch.tensor([0.25, 1, 1])).tolist()
        square = (self.size, self.size)
        image = ImageOps.fit(image, square, Image.Resampling.BILINEAR, bleed, centre)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
        return (pixels - MEAN) / DEVIATION, label


@dataclass
class Images(scores.Classifier, FineTuning):
    """Every tenth image is held out, unless there is ``--validation DIR``."""

    model_name: str = flag("resnet", word, "MODEL", "local directory, or a type (%(default)s)")
    size: int = flag(224, whole(8), "N", "pixels of a side (%(default)s)")

    name = "images"
    counted = "images"
    defaults = {"lr": 5e-4, "weight_decay": 0.05, "batch_size": 32}  # noqa: RUF012
    _kind = "AutoModelForImageClassification"

    def prepare(self, directory):  # rank 0 alone
        every = media.labelled_images(Path(self.data))
        splits = {
            "train": [one for i, one in enumerate(every) if i % 10],
            "validation": every[::10],
        }
        if self.validation:
            held_out = media.labelled_images(Path(self.validation))
            splits = {"train": every, "validation": held_out}
        facts = {
            "held_out": f"of {self.validation}" if self.validation else "one image in 10",
            "labels": rows.labels_of({split: [c for _, c in of] for split, of in splits.items()}),
            "files": splits,
        }
        rows.begin_preparing(directory)
        rows.finish_preparing(directory, {}, facts, Path(self.data))

    def prepared(self, directory):  # every rank
        self.facts = rows.read_facts(directory)
        labels = self.facts["labels"]
        numbers = dict(zip(labels, self.name_classes(labels), strict=True))
        for split, images in self.facts.pop("files").items():
            self.splits[split] = [(file, numbers[label]) for file, label in images]

    def amount(self, split):
        return f"{len(self.splits[split]):,} images"

    def dataset(self, split):
        return Pixels(super().dataset(split), self.size, drawn=split == "train")

    def _names(self):
        return self.labels

    def _logits(self, model, batch):
        return model(pixel_values=batch[0]).logits.float(), batch[1]
