"""Fine-tune a Hugging Face model to tell which label a text has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config import flag, whole, word
from . import rows, scores
from .huggingface import OnText


class Labelled:
    """Pairs (tokens of shape (length,), class), int64, of texts of different lengths."""

    def __init__(self, texts: rows.Texts, classes: list[int]) -> None:
        self.texts = texts
        self.classes = torch.tensor(classes)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.texts[index], self.classes[index]


@dataclass
class SequenceClassification(scores.Classifier, OnText):
    """A model with a classification head; texts that are too long lose their end."""

    text: str = flag("text", word, "COLUMN", 'or "{title}: {body}" (%(default)s)')
    label: str = flag("label", word, "COLUMN", "with the right answers (%(default)s)")
    length: int = flag(128, whole(1), "N", "most tokens of a text (%(default)s)")

    name = "sequence_classification"
    counted = "texts"
    _kind = "AutoModelForSequenceClassification"
    _tokens_needed = ("pad",)

    def write(self, directory: Path, splits: Mapping[str, rows.Rows]) -> dict[str, Any]:
        answers = {split: list(of.texts("--label", self.label)) for split, of in splits.items()}
        # Those of a ClassLabel have an order, and need not all occur.
        labels = splits["train"].classes.get(self.label) or rows.labels_of(answers)
        numbers = {label: [number] for number, label in enumerate(labels)}
        for split, of in splits.items():
            texts = zip(of.places, of.texts("--text", self.text), strict=True)
            encoded = (self._encode(text, of, place) for place, text in texts)
            rows.write(directory, split, encoded)
            rows.write(directory, f"{split}-class", (numbers[each] for each in answers[split]))
        return {"labels": labels}

    def _encode(self, text: str, of: rows.Rows, place: int) -> list[int]:
        ids: list[int] = self.tokens(text, truncation=True, max_length=self.length)["input_ids"]
        if not ids:
            raise of.refusal("--text", place, "has no token; leave the row out")
        return ids

    def take_up(self, facts: dict[str, Any]) -> None:
        self.numbers = self.name_classes(facts["labels"])

    def read(self, directory: Path, split: str) -> Labelled:
        classes = rows.Texts(directory, f"{split}-class").tokens[:].tolist()
        return Labelled(rows.Texts(directory, split), [self.numbers[label] for label in classes])

    def amount(self, split: str) -> str:
        return f"{len(self.splits[split]):,} texts"

    def collate(self, samples: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        """Return the batch, padded to its longest text."""
        texts, classes = zip(*samples, strict=True)
        pad = nn.utils.rnn.pad_sequence
        ids = pad(list(texts), batch_first=True, padding_value=self.tokens.pad_token_id)
        mask = pad([torch.ones_like(text) for text in texts], batch_first=True)
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.stack(classes)}

    def _names(self) -> list[str]:
        return self.labels

    def _logits(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        return model(**inputs).logits.float(), batch["labels"]
