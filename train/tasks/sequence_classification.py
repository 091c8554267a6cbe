"""Fine-tune a Hugging Face model to tell which label a text has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..config import flag, whole, word
from ..errors import RefusedError
from . import rows, scores
from .huggingface import FineTuning, flops_per_token, model_of

LABELS = "labels.txt"


class Texts:
    """Pairs (tokens of shape (length,), class), int64, of texts of different lengths."""

    def __init__(self, tokens: rows.Mapped, ends: rows.Mapped, labels: rows.Mapped) -> None:
        self.tokens = tokens
        self.ends = ends
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        begin = int(self.ends[index - 1]) if index else 0
        return self.tokens[begin : int(self.ends[index])].long(), self.labels[index]


@dataclass
class SequenceClassification(scores.Classifier, FineTuning):
    """A model with a classification head; texts that are too long lose their end."""

    text: str = flag("text", word, "COLUMN", 'or "{title}: {body}" (%(default)s)')
    label: str = flag("label", word, "COLUMN", "with the right answers (%(default)s)")
    length: int = flag(128, whole(1), "N", "most tokens of a text (%(default)s)")

    name = "sequence_classification"
    counted = "texts"
    _kind = "AutoModelForSequenceClassification"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.labels: list[str] = []

    def write(self, directory: Path, splits: Mapping[str, Sequence[rows.Row]]) -> None:
        answers = {
            split: [rows.fill("--label", self.label, row) for row in of_split]
            for split, of_split in splits.items()
        }
        labels = sorted(set(answers["train"]))
        if unknown := set().union(*answers.values()).difference(labels):
            raise RefusedError(f"--label: {unknown.pop()!r} is among the held-out answers only")
        for split, of_split in splits.items():
            texts = (rows.fill("--text", self.text, row) for row in of_split)
            rows.write_tokens(directory, split, [self._encode(text) for text in texts])
            numbers = np.array([labels.index(answer) for answer in answers[split]])
            np.save(directory / rows.FOLDER / f"{split}-labels.npy", numbers)
        (directory / rows.FOLDER / LABELS).write_text("\n".join(labels), encoding="utf-8")

    def _encode(self, text: str) -> list[int]:
        encoded = self.tokens(text, truncation=True, max_length=self.length)
        ids: list[int] = encoded["input_ids"]
        return ids or [self.tokens.eos_token_id]

    def prepared(self, directory: Path) -> None:
        super().prepared(directory)
        # As bytes: a label may end in \r, which the end of a line of a text would take.
        self.labels = (directory / rows.FOLDER / LABELS).read_bytes().decode().split("\n")
        names = dict(enumerate(self.labels))
        numbers = {name: number for number, name in names.items()}
        self.configure(num_labels=len(names), id2label=names, label2id=numbers)
        for split in rows.prepared_splits(directory):
            parts = (f"{split}-{name}" for name in ("tokens", "ends", "labels"))
            self.splits[split] = Texts(*(rows.read_prepared(directory, part) for part in parts))

    def _counts(self) -> str:
        return f"{super()._counts()}, {len(self.labels)} labels"

    def _size(self, split: str) -> str:
        return f"{len(self.splits[split]):,} texts"

    def model(self) -> Any:
        model = model_of(self._kind, self.model_name, self.config, self.tokens, self.length)
        mean_length = len(self.splits["train"].tokens) / len(self.splits["train"])
        self.flops_per_sample = mean_length * flops_per_token(model)
        return model

    def collate(self, samples: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        """Padded to the longest text of the batch."""
        texts, labels = zip(*samples, strict=True)
        pad = nn.utils.rnn.pad_sequence
        ids = pad(list(texts), batch_first=True, padding_value=self.tokens.pad_token_id)
        mask = pad([torch.ones_like(text) for text in texts], batch_first=True)
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.stack(labels)}

    def _names(self) -> list[str]:
        return self.labels

    def _logits(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        return model(**inputs).logits.float(), batch["labels"]
