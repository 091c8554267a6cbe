"""Train or fine-tune a causal language model of Hugging Face transformers on local text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import flag, whole, word
from . import rows
from .huggingface import OnText
from .language import NO_TARGET, Windows


@dataclass
class CausalLM(OnText):
    """Texts are joined, each ended by the end-of-text token, and cut into pieces of one length."""

    text: str = flag("text", word, "COLUMN", 'or "Q: {question} A: {answer}" (%(default)s)')
    length: int = flag(128, whole(2), "N", "tokens the model looks at (%(default)s)")

    name = "causal_lm"
    unit = "nats per token"
    counted = "tokens"
    _kind = "AutoModelForCausalLM"
    _tokens_needed = ("eos",)

    def write(self, directory: Path, splits: Mapping[str, rows.Rows]) -> dict[str, Any]:
        for split, of_split in splits.items():
            texts = of_split.texts("--text", self.text)
            encoded = (self.tokens(text, add_special_tokens=False)["input_ids"] for text in texts)
            rows.write(directory, split, ([*ids, self.tokens.eos_token_id] for ids in encoded))
        return {}

    def read(self, directory: Path, split: str) -> Windows:
        tokens = rows.Texts(directory, split).tokens
        return Windows(tokens, self.length, stride=self.length)

    def amount(self, split: str) -> str:
        return f"{len(self.splits[split].text):,} tokens"

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, targets = batch
        logits = model(input_ids=inputs).logits
        nats = F.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=NO_TARGET, reduction="sum"
        )
        return nats, (targets != NO_TARGET).sum()

    def sample(self, model: Any, seed: int) -> str:
        half = self.length // 2
        torch.manual_seed(seed)
        ids = rows.copied(self.splits["validation"].text[:half])[None].to(model.device)
        written = model.generate(ids, max_new_tokens=half, do_sample=True, use_cache=True)
        return str(self.tokens.decode(written[0].tolist(), skip_special_tokens=True))
