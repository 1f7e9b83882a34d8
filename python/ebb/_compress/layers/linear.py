# SPDX-License-Identifier: Apache-2.0
"""Linear layers that keep the recipe of their input, 8 bits of it, or a random projection of its rows."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ebb._compress.arithmetic.dispatch import from_int8_blocks, int8_blocks
from ebb._compress.compiled import NotScripted, never_compiled
from ebb._compress.derivatives import only_once
from ebb._compress.offloading import held
from ebb._compress.recipes import Leaf, Recipe
from ebb._compress.saving import keeping
from ebb._compress.settings import at_work, autocast_dtype, parametrised, settings_of, without_autocast


class _Lossy(torch.autograd.Function):
    """Input and bias gradients are exact; the weight's is that of what was kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, codec: str, seed: int) -> Tensor:
        rows = x.reshape(x.shape[:-1].numel(), x.shape[-1])
        ctx.codec = codec
        if codec == "int8":
            ctx.save_for_backward(weight, *int8_blocks(rows.reshape(-1)))
        else:
            # Saved with its projection: torch's checkpoint runs this again, with another seed.
            ctx.save_for_backward(weight, _signs(seed, rows) @ rows, torch.tensor(seed, device="cpu"))
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        weight, *kept = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        outs, ins = weight.shape
        rows = gy.reshape(gy.numel() // max(1, outs), outs)
        with torch.no_grad(), without_autocast(gy):
            gx = gy @ weight if need_x else None
            gb = rows.sum(0) if need_bias else None
            gw = None
            if need_weight and ctx.codec == "int8":
                codes, scale = kept
                gw = rows.t() @ from_int8_blocks(codes, scale, gy.dtype).view(rows.shape[0], ins)
            elif need_weight:
                gw = (_signs(int(kept[1]), rows) @ rows).t() @ kept[0]
        what = "a linear layer that keeps its input in 8 bits or projected"
        return only_once(what, (gx, gw, gb), gy, weight) + (None,) * 2


PROJECTED = 4  # times fewer rows
_SEEDS = itertools.count(1)  # torch's own generator must go on as it would have without us


def _signs(seed: int, rows: Tensor) -> Tensor:
    """A random matrix S with S^T S = 1 in the mean, the same for the same seed."""
    generator = torch.Generator(rows.device).manual_seed(seed)
    few = max(1, -(-rows.shape[0] // PROJECTED))
    signs = torch.randint(2, (few, rows.shape[0]), generator=generator, device=rows.device, dtype=torch.int8)
    return signs.mul_(2).sub_(1).to(rows.dtype).mul_(few**-0.5)


class Linear(NotScripted, nn.Linear):
    stock = nn.Linear

    @never_compiled
    def forward(self, x: Tensor) -> Tensor:
        settings = settings_of(self)
        if parametrised(self) or not at_work(x, self.weight, self.bias):
            return super().forward(x)
        if (dtype := autocast_dtype(x)) is not None and x.dtype != dtype:
            x = x.to(dtype)
        if settings.way == "compress" and self.weight.requires_grad and x.dim() > 1:
            weight, bias = (None if one is None else one.to(x.dtype) for one in (self.weight, self.bias))
            with without_autocast(x):
                return _Lossy.apply(x, weight, bias, settings.codec, next(_SEEDS))
        before = held(x, settings)
        if isinstance(before, Leaf):
            return super().forward(x)
        saved: Tensor = x
        if x.dim() > 2 and x.is_contiguous():  # then torch saves the rows of it
            before, saved = Recipe(_rows, before), x.detach().view(-1, x.shape[-1])
        with keeping(before, saved):
            return super().forward(x)


def _rows(x: Tensor, mine: bool) -> Tensor:
    return x.view(-1, x.shape[-1])
