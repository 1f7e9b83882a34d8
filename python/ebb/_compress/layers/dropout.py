# SPDX-License-Identifier: Apache-2.0
"""Dropout that keeps a bit of each element; torch keeps a byte or a whole number. Generators go on as they would with torch's.

A generator's state would be less still, but it is shared by threads: the noise of the forward pass could not be recomputed for
sure.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ebb._compress.arithmetic.dispatch import pack_bits, sign_bits, unpack_bits
from ebb._compress.arithmetic.shapes import Order
from ebb._compress.compiled import NotScripted, never_compiled
from ebb._compress.derivatives import along
from ebb._compress.recipes import Leaf, Recipe
from ebb._compress.saving import keeping
from ebb._compress.settings import at_work
from ebb._compress.sources import Source, recipe_of


class _Noise:
    """How what is kept of the noise goes onto a value or a gradient."""

    def __init__(self, order: Order, p: float, kind: str):
        self._order, self._p, self._kind = order, p, kind

    def __call__(self, x: Tensor, mine: bool, kept: Tensor) -> Tensor:
        # Torch's kernel rounds the chance to stay to the precision it computes in; its backward pass does not.
        exact = torch.float64 if x.dtype == torch.float64 else torch.float32
        left = torch.tensor(1 - self._p, dtype=exact, device="cpu")
        return self._put(x, kept, 1.0 / left.item())

    def gradient(self, kept: Tensor, gy: Tensor) -> Tensor:
        return self._put(gy, kept, 1.0 / (1 - self._p))

    def _put(self, x: Tensor, kept: Tensor, fused_scale: float) -> Tensor:
        if self._kind == "channels":
            return x * kept
        there = self._order.back(unpack_bits(kept, x.numel()))
        if self._kind == "elements":
            return x * there.to(x.dtype).div_(1 - self._p)
        return torch.ops.aten.native_dropout_backward(x, there, fused_scale)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, made: Tensor | None, noise: Tensor | None, kept: Tensor, how: _Noise, inplace: bool
    ) -> Tensor:
        ctx.how = how
        ctx.save_for_backward(kept)
        if made is not None:
            return made
        assert noise is not None
        if inplace:
            ctx.mark_dirty(x)
            return x.mul_(noise)
        return x * noise

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        return along(gy, kept, ctx.how.gradient, ctx.how.gradient), None, None, None, None, None


class _CompressedDropout(NotScripted):
    """A mixin in front of nn.DropoutNd; `dims` are those of its input, where it drops whole channels."""

    dims = 0

    @never_compiled
    def forward(self: Any, x: Tensor) -> Tensor:
        p = self.p
        if (
            not self.training
            or not 0 < p < 1
            or x.numel() == 0
            or not x.is_floating_point()
            or self.dims not in (0, x.dim())
            or not at_work(x)
        ):
            return super().forward(x)  # type: ignore[misc]
        order = Order(x)
        made = noise = None
        with torch.no_grad():
            if self.dims:
                kind = "channels"
                noise = x.new_empty(*x.shape[:2], *[1] * (x.dim() - 2)).bernoulli_(1 - p).div_(1 - p)
                kept = noise
            elif x.is_cuda and not self.inplace:
                kind = "fused"
                made, there = torch.native_dropout(x.detach(), p, True)
                kept = pack_bits(order.flat(there))
            else:
                kind = "elements"
                noise = torch.empty_like(x).bernoulli_(1 - p)
                kept = sign_bits(order.flat(noise))
                noise.div_(1 - p)
        how, leaf, before = _Noise(order, p, kind), Leaf(kept), recipe_of(x)
        recipe = None if before is None else Recipe(how, before, [leaf])
        with keeping(leaf, kept, recipe):
            out = _Dropout.apply(x, made, noise, kept, how, self.inplace)
        if recipe is not None:
            Source.of(out).recipe = recipe
        return out


class Dropout(_CompressedDropout, nn.Dropout):
    stock = nn.Dropout


class Dropout1d(_CompressedDropout, nn.Dropout1d):
    stock = nn.Dropout1d
    dims = 3


class Dropout2d(_CompressedDropout, nn.Dropout2d):
    stock = nn.Dropout2d
    dims = 4


class Dropout3d(_CompressedDropout, nn.Dropout3d):
    stock = nn.Dropout3d
    dims = 5
