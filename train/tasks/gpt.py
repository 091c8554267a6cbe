"""A small GPT: what it takes to predict the next byte, and no option that is not used."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEAD_WIDTH = 32
ROTARY_BASE = 10_000.0


class Rotary(nn.Module):
    """Turns queries and keys by their position, so that their products see distances only.

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
        """Number i of a head and number i + half are turned together, as a point in a plane."""
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
        # The embedding is the output layer too: one table says what a byte is, in and out.
        return F.linear(self.norm(x), self.tokens.weight)
