# SPDX-License-Identifier: Apache-2.0
"""Nets of the compiled benchmark without batch norms, on torch.nn alone: ViT-S/16 (Dosovitskiy et al. 2021; Touvron et al. 2021),
the blocks of GPT-2 small (Radford et al. 2019) and ConvNeXt-T (Liu et al. 2022, without stochastic depth)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """A transformer block with its norms before attention and the wide layers."""

    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.into(self.norm1(x)).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        x = x + self.out(seen)
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, width: int = 384, heads: int = 6, depth: int = 12, pixels: int = 224, patch: int = 16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (pixels // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*[Attention(width, heads, False) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class GPT(nn.Module):
    """The twelve blocks between the embedding and the output layer, and a mean in the place of that; inputs are embeddings."""

    def __init__(self, width: int = 768, heads: int = 12, depth: int = 12):
        super().__init__()
        self.blocks = nn.Sequential(*[Attention(width, heads, True) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(x)).mean(1))


class ConvNeXtBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.narrow(F.gelu(self.wide(y)))).permute(0, 3, 1, 2)


class ChannelNorm(nn.LayerNorm):
    """A LayerNorm over the channels of images."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext(depths: tuple[int, ...] = (3, 3, 9, 3), width: int = 96) -> nn.Module:
    layers: list[Any] = [nn.Conv2d(3, width, 4, 4), ChannelNorm(width, eps=1e-6)]
    for stage, depth in enumerate(depths):
        if stage:
            layers += [ChannelNorm(width, eps=1e-6), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        layers += [ConvNeXtBlock(width) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(width), nn.Linear(width, 1000))
