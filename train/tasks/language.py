"""Predict the next byte of English prose: the help topics that every Python carries along.

The text is read from the standard library at run time (``pydoc_data.topics``, about half a
megabyte), or from a file. It differs between Python versions, so its digest is part of the
description.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import math
import platform
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import RefusedError
from ..flags import flag, path, whole
from .gpt import GPT
from .prepared import Mapped

BYTES = 256
NO_TARGET = -1
VALIDATION_SHARE = 0.1
SMALLEST_TEXT = 20
SAMPLE_BYTES = 240
SAMPLE_TEMPERATURE = 0.7
SAMPLE_PROMPT = b"The statement "


def help_topics() -> bytes:
    """The help topics of the running Python, sorted by name and joined, as UTF-8."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    return "\n".join(topics[name] for name in sorted(topics)).encode()


class Windows:
    """Pairs (input, target) of shape (context,), int64, cut out of one text.

    Item i begins at byte i * stride; the target is the input shifted by one byte. Where the text
    ends early, the rest of the target is NO_TARGET. With stride == context every byte of the text
    but its first is a target exactly once.
    """

    def __init__(self, text: Tensor | Mapped, context: int, stride: int) -> None:
        self.text = text
        self.context = context
        self.stride = stride

    def __len__(self) -> int:
        return math.ceil((len(self.text) - 1) / self.stride)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.stride
        piece = self.text[start : start + self.context + 1].long()
        missing = self.context + 1 - len(piece)
        return (
            F.pad(piece[:-1], (0, missing)),
            F.pad(piece[1:], (0, missing), value=NO_TARGET),
        )


@dataclass(frozen=True)
class Language:
    """A byte-level GPT on the help topics or a text; the last tenth of the bytes is held out."""

    context: int = flag(128, whole(1, 4096), "N", "bytes the model looks at (%(default)s)")
    layers: int = flag(5, whole(1, 1000), "N", "blocks of the model (%(default)s)")
    width: int = flag(128, whole(32, 8192, 32), "N", "a multiple of 32 (%(default)s)")
    text: str | None = flag(None, path, "FILE", "what to train on (the help topics of Python)")

    name = "language"
    unit = "bits per byte"
    counted = "bytes"

    @functools.cached_property
    def texts(self) -> dict[str, Tensor]:
        """The bytes of each split, uint8."""
        text = self._whole_text()
        held_out = int(len(text) * VALIDATION_SHARE)
        ids = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        return {"train": ids[:-held_out], "validation": ids[-held_out:]}

    def _whole_text(self) -> bytes:
        try:
            text = help_topics() if self.text is None else Path(self.text).read_bytes()
        except OSError as error:
            raise RefusedError(f"--text: {error}; type the name of a file", shared=True) from error
        if len(text) < SMALLEST_TEXT:
            raise RefusedError(
                f"--text: {self.text} has {len(text)} bytes; type the name of a longer file",
                shared=True,
            )
        return text

    def describe(self) -> str:
        train, validation = self.texts["train"], self.texts["validation"]
        digest = hashlib.sha256(bytes(torch.cat((train, validation)).numpy())).hexdigest()
        source = self.text or f"help topics of Python {platform.python_version()}"
        return (
            f"{source}, sha256 {digest[:12]}: {len(train):,} bytes to train on, "
            f"{len(validation):,} held out (a uniform guess: 8 {self.unit})"
        )

    @property
    def flops_per_sample(self) -> float:
        """Of a forward and a backward pass on one window (Kaplan et al., arXiv:2001.08361)."""
        weights = 12 * self.layers * self.width**2 + BYTES * self.width
        return self.context * (6.0 * weights + 12 * self.layers * self.width * self.context)

    def model(self) -> GPT:
        return GPT(BYTES, self.context, self.layers, self.width)

    def dataset(self, split: str) -> Windows:
        # Training may begin a window at any byte; validation looks at every byte once.
        stride = 1 if split == "train" else self.context
        return Windows(self.texts[split], self.context, stride)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, targets = batch
        logits = model(inputs)
        nats = F.cross_entropy(
            logits.view(-1, BYTES), targets.view(-1), ignore_index=NO_TARGET, reduction="sum"
        )
        return nats / math.log(2), (targets != NO_TARGET).sum()

    @torch.no_grad()
    def sample(self, model: nn.Module, seed: int) -> str:
        device = next(model.parameters()).device
        generator = torch.Generator().manual_seed(seed)
        ids = torch.tensor([list(SAMPLE_PROMPT)])
        for _ in range(SAMPLE_BYTES):
            logits = model(ids[:, -self.context :].to(device))[0, -1].float().cpu()
            chances = torch.softmax(logits / SAMPLE_TEMPERATURE, dim=-1)
            drawn = torch.multinomial(chances, 1, generator=generator)
            ids = torch.cat((ids, drawn[None]), dim=1)
        return bytes(ids[0].tolist()).decode(errors="replace")
