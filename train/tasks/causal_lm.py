"""Train or fine-tune a causal language model of Hugging Face transformers on local text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import flag, whole, word
from . import rows
from .huggingface import FineTuning, flops_per_token, model_of
from .language import NO_TARGET, Windows


@dataclass
class CausalLM(FineTuning):
    """Texts are joined, each ended by the end-of-text token, and cut into pieces of one length."""

    text: str = flag("text", word, "COLUMN", 'or "Q: {question} A: {answer}" (%(default)s)')
    length: int = flag(128, whole(2), "N", "tokens the model looks at (%(default)s)")

    name = "causal_lm"
    unit = "nats per token"
    counted = "tokens"
    _kind = "AutoModelForCausalLM"

    def write(self, directory: Path, splits: Mapping[str, Sequence[rows.Row]]) -> None:
        for split, of_split in splits.items():
            texts = (rows.fill("--text", self.text, row) for row in of_split)
            rows.write_tokens(directory, split, [self._encode(text) for text in texts])

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokens(text, add_special_tokens=False)["input_ids"]
        return [*ids, self.tokens.eos_token_id]

    def prepared(self, directory: Path) -> None:
        super().prepared(directory)
        for split in rows.prepared_splits(directory):
            tokens = rows.read_prepared(directory, f"{split}-tokens")
            self.splits[split] = Windows(tokens, self.length, stride=self.length)

    def _size(self, split: str) -> str:
        return f"{len(self.splits[split].text):,} tokens"

    def model(self) -> Any:
        model = model_of(self._kind, self.model_name, self.config, self.tokens, self.length)
        self.flops_per_sample = self.length * flops_per_token(model)
        return model

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, targets = batch
        logits = model(input_ids=inputs).logits
        nats = F.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=NO_TARGET, reduction="sum"
        )
        return nats, (targets != NO_TARGET).sum()

    @torch.no_grad()
    def sample(self, model: Any, seed: int) -> str:
        ids = self.splits["validation"].text[: self.length // 2].long()[None]
        torch.manual_seed(seed)
        device = next(model.parameters()).device
        for _ in range(self.length // 2):
            logits = model(input_ids=ids.to(device)).logits[0, -1].float().cpu()
            drawn = torch.multinomial(torch.softmax(logits, dim=-1), 1)
            ids = torch.cat((ids, drawn[None]), dim=1)
        return str(self.tokens.decode(ids[0].tolist(), skip_special_tokens=True))
