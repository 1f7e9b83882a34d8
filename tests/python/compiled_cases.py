# SPDX-License-Identifier: Apache-2.0
"""Models and what is done with them in the tests of `ebb.compiled`, whose graphs run operation by operation, so that the same operations
give the same bits wherever they run."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn

from ebb._compiled import torch_compiler


def by_operation(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For a fixture."""

    def interpreted(graph: Any, inputs: Any, **words: Any) -> Any:
        return make_boxed_func(graph.forward)

    real = torch_compiler._compile_fx
    monkeypatch.setattr(torch_compiler, "_compile_fx", functools.partial(real, inner_compile=interpreted))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.norm3(self.conv3(self.relu(self.norm2(self.conv2(y)))))
        y += x
        return self.relu(y)


class Attention(nn.Module):
    def __init__(self, width: int, dropout: float = 0.0):
        super().__init__()
        self.norm1, self.norm2, self.dropout = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(dropout)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.into(self.norm1(x)).chunk(3, -1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.out(seen))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x))))


def residual(blocks: int = 3) -> tuple[nn.Module, Any]:
    stem = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    net = nn.Sequential(
        *stem, *[Bottleneck(32, 8) for _ in range(blocks)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4)
    )
    return net, torch.randn(4, 3, 32, 32)


def language(dropout: float = 0.0) -> tuple[nn.Module, Any]:
    return nn.Sequential(*[Attention(16, dropout) for _ in range(3)]), torch.randn(4, 24, 16)


def plain_relu() -> tuple[nn.Module, Any]:
    layers = [nn.Conv2d(8, 8, 3, padding=1), nn.SiLU(), nn.GroupNorm(2, 8)]
    return nn.Sequential(*[copy.deepcopy(one) for _ in range(4) for one in layers]), torch.randn(2, 8, 16, 16)


MODELS = {"residual": residual, "language": language, "dropout": lambda: language(0.2), "group": plain_relu}


def gradients(model: nn.Module, x: Any, backend: Any) -> list[Any]:
    torch.manual_seed(3)
    torch._dynamo.reset()
    model = copy.deepcopy(model)
    out = torch.compile(model, backend=backend)(x)
    (out * torch.linspace(-1, 2, out.numel()).view_as(out)).square().mean().backward()
    return [out.detach(), *(one.grad for one in model.parameters()), *model.buffers()]


class Stock:
    """torch's own choice, in the same operations."""

    def __call__(self, model: Any, inputs: Any) -> Any:
        return torch_compiler.compile_with(torch_compiler.torchs_own, model, inputs, {"fallback_random": True})
