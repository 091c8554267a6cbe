"""What the tasks on Hugging Face models have in common: flags, defaults, and how they are saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..flags import flag, path, word
from . import prepared
from .huggingface import tokenizer_of
from .rows import Row, read_splits


@dataclass
class FineTuning:
    """A model and a tokenizer from this machine, and local rows to train on."""

    data: str = field(
        metadata={"type": path, "metavar": "FILE", "help": ".jsonl, .csv, .txt or saved data set"}
    )
    model_name: str = flag("gpt2", word, "MODEL", "local directory, or a type (%(default)s)")
    model_config: str = flag("{}", word, "JSON", "changes of the model's configuration")
    tokenizer: str | None = flag(None, path, "DIR", "local directory (the model's; else bytes)")
    validation: str | None = flag(None, path, "FILE", "held-out data (every tenth text)")

    defaults = {"lr": 5e-5, "weight_decay": 0.01}  # noqa: RUF012

    def __post_init__(self) -> None:
        self.tokens = tokenizer_of(self.model_name, self.tokenizer)

    def prepare(self, directory: Path) -> None:
        """Make tokens of the rows, unless a run that now goes on has done so."""
        source = prepared.source_of(asdict(self), self.data, self.validation)
        if not prepared.is_made(directory, source):
            prepared.begin(directory)
            self.write(directory, read_splits(self.data, self.validation))
            prepared.finish(directory, source)

    def write(self, directory: Path, splits: Mapping[str, Sequence[Row]]) -> None:
        """Write the arrays of each split; a task does it in its own way."""
        raise NotImplementedError

    def export(self, model: Any, directory: Path) -> None:
        """In the form that from_pretrained reads."""
        model.save_pretrained(directory / "model")
        self.tokens.save_pretrained(directory / "model")
