"""Predict the next byte of English prose: the help topics that come with every Python.

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
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import flag, whole, word
from ..errors import shared_refusal
from ..task import Task, split_of
from .rows import copied

HEAD_WIDTH = 32
ROTARY_BASE = 10_000.0


class Rotary(nn.Module):
    """Rotates queries and keys by their position, so that their products depend on distances only.

    Shape (..., time, HEAD_WIDTH) to the same (RoFormer, arXiv:2104.09864). A model this
    small learns several times faster with it than with a table of positions.
    """

    def __init__(self, context: int) -> None:
        super().__init__()
        half = HEAD_WIDTH // 2
        speeds = ROTARY_BASE ** (-torch.arange(half) / half)
        angles = (torch.arange(context)[:, None] * speeds).repeat(1, 2)
        signs = torch.tensor([-1.0, 1.0]).repeat_interleave(half)
        self.cos: Tensor
        self.sin: Tensor
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin() * signs, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Rotate numbers i and i + half of a head together, as a point in a plane."""
        time = x.shape[-2]
        partners = x.roll(HEAD_WIDTH // 2, dims=-1)
        return torch.addcmul(x * self.cos[:time], partners, self.sin[:time])


class Attention(nn.Module):
    """Causal self-attention, ``width // HEAD_WIDTH`` heads; (batch, time, width) to the same."""

    def __init__(self, width: int, rotary: Rotary) -> None:
        super().__init__()
        self.heads = width // HEAD_WIDTH
        self.rotary = rotary
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        # One product for all three, then (3, batch, heads, time, HEAD_WIDTH).
        qkv = self.qkv(x).view(batch, time, 3, self.heads, HEAD_WIDTH).permute(2, 0, 3, 1, 4)
        both, value = qkv.split((2, 1))
        query, key = self.rotary(both)
        mixed = F.scaled_dot_product_attention(query, key, value.squeeze(0), is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return out


class Block(nn.Module):
    """Attention, then a layer four times as wide, each added to what came in."""

    def __init__(self, width: int, rotary: Rotary) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, bias=False)
        self.attention = Attention(width, rotary)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        # Squared ReLU learns a little faster than GELU here, and is cheaper (arXiv:2109.08668).
        out: Tensor = x + self.down(F.relu(self.up(self.norm2(x))).square())
        return out


class GPT(nn.Module):
    """Token ids (batch, time <= context), int64, to logits (batch, time, vocabulary)."""

    def __init__(self, vocabulary: int, context: int, layers: int, width: int) -> None:
        super().__init__()
        rotary = Rotary(context)
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, rotary) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                # Each block begins as the identity, which allows a high learning rate early on.
                nn.init.zeros_(parameter)
            elif name.startswith("blocks") and parameter.dim() == 2:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        # The embedding is the output layer too: one table stands for the bytes, in and out.
        return F.linear(self.norm(x), self.tokens.weight)


BYTES = 256
NO_TARGET = -1
HELD_OUT_SHARE = 0.1
SMALLEST_TEXT = 40
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

    def __init__(self, text: Any, context: int, stride: int) -> None:
        """``text`` is a tensor or an array of shape (bytes,)."""
        self.text = text
        self.context = context
        self.stride = stride

    def __len__(self) -> int:
        return math.ceil((len(self.text) - 1) / self.stride)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.stride
        piece = copied(self.text[start : start + self.context + 1])
        missing = self.context + 1 - len(piece)
        ends = (0, missing)
        return F.pad(piece[:-1], ends), F.pad(piece[1:], ends, value=NO_TARGET)


@dataclass(frozen=True)
class Language(Task):
    """A byte-level GPT on the help topics or a text.

    The last tenth is held out: half of it to validate with, and half to test.
    """

    context: int = flag(128, whole(1, 4096), "N", "bytes the model looks at (%(default)s)")
    layers: int = flag(5, whole(1, 1000), "N", "blocks of the model (%(default)s)")
    width: int = flag(128, whole(32, 8192, 32), "N", "a multiple of 32 (%(default)s)")
    text: str | None = flag(None, word, "FILE", "what to train on (the help topics of Python)")

    name = "language"
    unit = "bits per byte"
    counted = "bytes"

    @functools.cached_property
    def texts(self) -> dict[str, Tensor]:
        """The bytes of each split, uint8."""
        text = self._whole_text()
        held_out = int(len(text) * HELD_OUT_SHARE)
        ids = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        held, half = ids[-held_out:], held_out // 2
        return {"train": ids[:-held_out], "validation": held[:-half], "test": held[-half:]}

    def _whole_text(self) -> bytes:
        try:
            text = help_topics() if self.text is None else Path(self.text).read_bytes()
        except OSError as error:
            raise shared_refusal(f"--text: {error}; use the name of a file") from error
        if len(text) < SMALLEST_TEXT:
            raise shared_refusal(
                f"--text: {self.text} has {len(text)} bytes; use the name of a longer file"
            )
        return text

    def describe(self) -> str:
        digest = hashlib.sha256(bytes(torch.cat(list(self.texts.values())).numpy())).hexdigest()
        train, validation, test = map(len, self.texts.values())
        source = self.text or f"help topics of Python {platform.python_version()}"
        return (
            f"{source}, sha256 {digest[:12]}: {train:,} bytes to train on, {validation + test:,} "
            f"held out, half of them to test (a uniform guess: 8 {self.unit})"
        )

    def model(self) -> GPT:
        return GPT(BYTES, self.context, self.layers, self.width)

    def dataset(self, split: str) -> Windows:
        # Training may begin a window at any byte; validation looks at every byte once.
        stride = 1 if split == "train" else self.context
        return Windows(split_of(self.texts, split), self.context, stride)

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
