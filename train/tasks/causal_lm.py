"""Train or fine-tune a causal language model of Hugging Face transformers on local text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.flags import flag, path, whole, word

from . import prepared, rows
from .huggingface import config_of, flops_per_token, model_of, tokenizer_of
from .language import NO_TARGET, Windows


@dataclass
class CausalLM:
    """Texts are joined, each ended by the end-of-text token, and cut into pieces of one length."""

    data: str = field(
        metadata={"type": path, "metavar": "FILE", "help": ".jsonl, .csv, .txt or saved data set"}
    )
    model_name: str = flag("gpt2", word, "MODEL", "local directory, or a type (%(default)s)")
    model_config: str = flag("{}", word, "JSON", "changes of the model's configuration")
    tokenizer: str | None = flag(None, path, "DIR", "local directory (the model's; else bytes)")
    validation: str | None = flag(None, path, "FILE", "held-out data (every tenth text)")
    text: str = flag("text", word, "COLUMN", 'or "Q: {question} A: {answer}" (%(default)s)')
    length: int = flag(128, whole(2), "N", "tokens the model looks at (%(default)s)")

    name = "causal_lm"
    unit = "nats per token"
    counted = "tokens"
    defaults = {"lr": 5e-5, "weight_decay": 0.01}  # noqa: RUF012

    def __post_init__(self) -> None:
        self.tokens = tokenizer_of(self.model_name, self.tokenizer)
        self.config = config_of(self.model_name, self.model_config, self.tokens)
        self.splits: dict[str, Windows] = {}

    def prepare(self, directory: Path) -> None:
        source = prepared.source_of(asdict(self), self.data, self.validation)
        if prepared.is_made(directory, source):
            return
        for split, of_split in rows.read_splits(self.data, self.validation).items():
            texts = (rows.fill(self.text, row) for row in of_split)
            tokens = [self._encode(text) for text in texts]
            prepared.write_tokens(directory, split, tokens)
        prepared.finish(directory, source)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokens(text, add_special_tokens=False)["input_ids"]
        return [*ids, self.tokens.eos_token_id]

    def prepared(self, directory: Path) -> None:
        for split in ("train", "validation"):
            tokens = prepared.read(directory, f"{split}-tokens")
            self.splits[split] = Windows(tokens, self.length, stride=self.length)

    def describe(self) -> str:
        train, validation = (len(self.splits[name].text) for name in ("train", "validation"))
        return f"{self.data}: {train:,} tokens to train on, {validation:,} held out"

    def model(self) -> Any:
        model = model_of("AutoModelForCausalLM", self.model_name, self.config, self.tokens)
        self.flops_per_sample = self.length * flops_per_token(model)
        return model

    def dataset(self, split: str) -> Windows:
        return self.splits[split]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, targets = batch
        logits = model(input_ids=inputs).logits
        nats = F.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=NO_TARGET, reduction="sum"
        )
        return nats, (targets != NO_TARGET).sum()

    def export(self, model: Any, directory: Path) -> None:
        """In the form that from_pretrained reads."""
        model.save_pretrained(directory / "model")
        self.tokens.save_pretrained(directory / "model")

    @torch.no_grad()
    def sample(self, model: Any, seed: int) -> str:
        ids = self.splits["validation"].text[: self.length // 2].long()[None]
        torch.manual_seed(seed)
        device = next(model.parameters()).device
        for _ in range(self.length // 2):
            logits = model(input_ids=ids.to(device)).logits[0, -1].float().cpu()
            drawn = torch.multinomial(torch.softmax(logits, dim=-1), 1)
            ids = torch.cat((ids, drawn[None]), dim=1)
        text = str(self.tokens.decode(ids[0].tolist(), skip_special_tokens=True))
        return "".join(
            c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text
        )
